#!/usr/bin/env bash
# Sees to the tools that a command of the Makefile uses:
#
#   scripts/tools.sh [test | build | engine | model | llama-cpp | llama-server]
#
# First looks for Rust, which comes from rustup; without it nothing is installed. What else is
# missing is installed with apt-get where that is possible without a question; otherwise the one
# command that does it is printed. For `test` only a compiler and make are indispensable: without
# any other tool its checks are skipped, loudly.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/go/bin"
source scripts/go.sh

what="${1:-test}"
case "$what" in
test | build | engine | model | llama-cpp | llama-server) ;;
*) sed -n '4s/^# *//p' "$0" >&2; exit 2 ;;
esac

rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
from_rustup="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
fail() { # message, command
    printf 'error: %s\n    %s\n' "$1" "$2" >&2
    exit 1
}
command -v cargo >/dev/null ||
    fail "cargo is not installed. Rust $rust or later comes with" "$from_rustup"
found=$(cargo --version) || fail "cargo is there but does not run. Perhaps" "rustup default stable"
found=$(cut -d' ' -f2 <<<"$found")
if [ "$(printf '%s\n' "$rust" "$found" | sort -V | head -n 1)" != "$rust" ]; then
    command -v rustup >/dev/null && from_rustup="rustup update stable"
    fail "Rust $rust or later is needed, here is $found. It comes with" "$from_rustup"
fi

has_sanitizer_runtime() {
    local dir
    dir=$(clang -print-runtime-dir 2>/dev/null) || return 1
    # The folder that clang 14 names is not always the one that it uses: any beside it will do.
    compgen -G "${dir%/*}/*/libclang_rt.asan*" >/dev/null
}

has_venv() {
    python3 -c "import venv, ensurepip"
}

has_header() { # of C++, where the compiler or pkg-config looks by itself
    local flags
    flags=$(pkg-config --cflags "${2:-}" 2>/dev/null)
    # shellcheck disable=SC2086 # several flags
    printf '#include <%s>\n' "$1" | "${CXX:-c++}" -std=c++17 $flags -E -x c++ -
}

# Each line: how to see that it is there | its Debian package | what needs it
missing() {
    local check package users
    while IFS='|' read -r check package users; do
        case " $users " in *" $what "*) ;; *) continue ;; esac
        $check >/dev/null 2>&1 || echo "$package"
    done <<'TOOLS'
command -v make|make|test engine llama-cpp llama-server
command -v cc|gcc|test build engine llama-cpp llama-server
command -v c++|g++|test engine llama-cpp llama-server
command -v nm|binutils|test
command -v clang|clang|test
has_sanitizer_runtime|libclang-rt-dev|test
command -v valgrind|valgrind|test
command -v abidiff|abigail-tools|test
command -v doxygen|doxygen|test
command -v cmake|cmake|test engine llama-cpp llama-server
command -v pkg-config|pkg-config|test engine
has_go|golang-go|test
command -v zstd|zstd|test
command -v python3|python3|test model llama-server
has_venv|python3-venv|test model llama-server
command -v patch|patch|llama-server
command -v chromium|chromium|test
command -v redis-server|redis-server|test
has_header nlohmann/json.hpp nlohmann_json|nlohmann-json3-dev|test engine
has_header httplib.h cpp-httplib|libcpp-httplib-dev|test engine
has_header cblas.h openblas|libopenblas-dev|test
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
    [ "${minor:-0}" -ge "$go_minor" ] || set -- $(printf '%s\n' "$@" | grep -vx golang-go)
    # Together, for speed; one by one when this release calls one of them otherwise.
    apt install --no-install-recommends "$@" && return
    for package in "$@"; do apt install --no-install-recommends "$package"; done
}

mapfile -t packages < <(missing)
if [ ${#packages[@]} -gt 0 ] && can_apt; then
    echo "installing with apt-get, for $what: ${packages[*]}"
    install_packages "${packages[@]}" 2>&1 </dev/null |
        grep --line-buffered -E '^(Get:|Setting up |E: )'
    mapfile -t packages < <(missing)
fi

if [ "$what" = test ] && command -v rustup >/dev/null; then
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 ||
            rustup component add "$component" || true
    done
fi

[ ${#packages[@]} -gt 0 ] || exit 0
command="sudo apt-get install -y --no-install-recommends ${packages[*]}"
[ "$what" = test ] || fail "missing: ${packages[*]}. On Debian and Ubuntu they come with" "$command"
echo "missing, so some checks are skipped: ${packages[*]}. To have them all:"
echo "    $command"
echo "(where golang-go is older than Go 1.$go_minor: https://go.dev/dl)"
for tool in make cc c++; do
    command -v "$tool" >/dev/null || fail "$tool is indispensable. It comes with" "$command"
done
