#!/usr/bin/env bash
# Ensures the tools that `make test` uses. What is missing is installed with apt-get where that is
# possible without a question; otherwise the one command that does it is printed. Only a compiler,
# make and Rust are indispensable: without any other tool its checks are skipped, loudly.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/go/bin"

has_sanitizer_runtime() {
    local dir
    dir=$(clang -print-runtime-dir 2>/dev/null) || return 1
    # The folder that clang 14 names is not always the one that it uses: any beside it will do.
    compgen -G "${dir%/*}/*/libclang_rt.asan*" >/dev/null
}

go_minor=21 # of Go 1, the oldest that the binding takes
has_go() {
    local minor
    minor=$(go env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/')
    [ "${minor:-0}" -ge $go_minor ]
}

has_header() { # of C++, where the compiler looks by itself
    printf '#include <%s>\n' "$1" | c++ -std=c++17 -E -x c++ -
}

# Each line: how to see that it is there | its Debian package
missing() {
    local check package
    while IFS='|' read -r check package; do
        $check >/dev/null 2>&1 || echo "$package"
    done <<'TOOLS'
command -v make|make
command -v cc|gcc
command -v c++|g++
command -v nm|binutils
command -v clang|clang
has_sanitizer_runtime|libclang-rt-dev
command -v valgrind|valgrind
command -v abidiff|abigail-tools
command -v doxygen|doxygen
command -v cmake|cmake
command -v pkg-config|pkg-config
has_go|golang-go
command -v zstd|zstd
command -v python3|python3
has_header nlohmann/json.hpp|nlohmann-json3-dev
has_header httplib.h|libcpp-httplib-dev
has_header cblas.h|libopenblas-dev
TOOLS
}

apt() { # as root, never asking
    local get=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@")
    if [ "$(id -u)" = 0 ]; then "${get[@]}"; else sudo -n "${get[@]}"; fi
}

can_apt() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

install_packages() {
    apt update
    # Don't fetch a Go that is too old anyway.
    local minor
    minor=$(apt-cache policy golang-go | sed -n 's/ *Candidate: 2:1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge $go_minor ] || set -- $(printf '%s\n' "$@" | grep -vx golang-go)
    # Together, for speed; one by one when this release calls one of them otherwise.
    apt install --no-install-recommends "$@" && return
    for package in "$@"; do apt install --no-install-recommends "$package"; done
}

mapfile -t packages < <(missing)
if [ ${#packages[@]} -gt 0 ]; then
    echo "missing: ${packages[*]}"
    if can_apt; then
        log=$(mktemp)
        install_packages "${packages[@]}" >"$log" 2>&1 </dev/null
        mapfile -t packages < <(missing)
        grep '^E: ' "$log"
        rm -f "$log"
    fi
fi

if command -v rustup >/dev/null; then
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 ||
            rustup component add "$component" || true
    done
fi

if [ ${#packages[@]} -gt 0 ]; then
    echo "still missing, so some checks are skipped. To have them all:"
    echo "    sudo apt-get install -y --no-install-recommends ${packages[*]}"
    echo "(where golang-go is older than Go 1.$go_minor: https://go.dev/dl)"
fi
for tool in make cc c++ cargo; do
    if ! command -v "$tool" >/dev/null; then
        echo "error: $tool is indispensable (Rust: https://rustup.rs)" >&2
        exit 1
    fi
done
