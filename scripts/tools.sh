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
    compgen -G "$dir/libclang_rt.asan*" >/dev/null || compgen -G "${dir%/*}/*/libclang_rt.asan*" >/dev/null
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
command -v go|golang-go
command -v zstd|zstd
TOOLS
}

apt() { # as root, never asking
    local get=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@")
    if [ "$(id -u)" = 0 ]; then "${get[@]}"; else sudo -n "${get[@]}"; fi
}

mapfile -t packages < <(missing)
if [ ${#packages[@]} -gt 0 ]; then
    echo "missing: ${packages[*]}"
    if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
        log=$(mktemp)
        {
            apt update
            # Together, for speed; one by one when a package of this release is called otherwise.
            apt install --no-install-recommends "${packages[@]}" ||
                for package in "${packages[@]}"; do
                    apt install --no-install-recommends "$package"
                done
        } >"$log" 2>&1 </dev/null
        mapfile -t packages < <(missing)
        [ ${#packages[@]} -eq 0 ] || { echo "apt-get said:"; tail -n 5 "$log"; }
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
fi
for tool in make cc c++ cargo; do
    if ! command -v "$tool" >/dev/null; then
        echo "error: $tool is indispensable (Rust: https://rustup.rs)" >&2
        exit 1
    fi
done
