#!/usr/bin/env bash
# Installs libradixkv_net into a prefix with a space in its path, and builds programs outside the
# tree that find it by CMake, shared and static, and by pkg-config; then it is uninstalled.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/go.sh
command -v cmake >/dev/null || { echo "SKIP the package of libradixkv_net: no cmake"; exit 0; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/a prefix"
PREFIX=$prefix PROFILE=dev bash scripts/install_net.sh >/dev/null
mkdir "$work/program"
cat >"$work/program/main.c" <<'END'
#include <radixkv_net.h>
int main(void) { return rkv_net_abi_version() == RKV_NET_ABI_VERSION ? 0 : 1; }
END
version=$(sed -n 's/^version = "\(.*\)"/\1/p' net/Cargo.toml | head -n 1)
cat >"$work/program/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(program C)
find_package(radixkv_net ${version%.*} CONFIG REQUIRED)
find_package(radixkv_net 99 CONFIG QUIET)
if(radixkv_net_FOUND)
  message(FATAL_ERROR "version 99 is found")
endif()
foreach(kind radixkv_net static)
  add_executable(\${kind} main.c)
  target_link_libraries(\${kind} radixkv_net::\${kind})
endforeach()
END
cmake -S "$work/program" -B "$work/built" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" &&
    cmake --build "$work/built" >>"$work/log" || { cat "$work/log"; exit 1; }
for kind in radixkv_net static; do "$work/built/$kind"; done
needs() { readelf -d "$1" | grep -c "NEEDED.*libradixkv_net.so.${version%.*}\]" || true; }
[ "$(needs "$work/built/radixkv_net")" = 1 ] && [ "$(needs "$work/built/static")" = 0 ] ||
    { echo "net_package.sh: linked with the wrong library" >&2; exit 1; }
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    # With a space in them: quoted for a shell.
    eval "cc -o '$work/by-name' '$work/program/main.c' $(pkg-config --cflags --libs radixkv_net)"
    LD_LIBRARY_PATH=$prefix/lib "$work/by-name"
fi
if has_go && command -v pkg-config >/dev/null; then
    # With this header alone.
    (cd bindings/go/net && GOTOOLCHAIN=local GOFLAGS='' PKG_CONFIG_PATH=$prefix/lib/pkgconfig \
        go build .)
else
    echo "SKIP Go with the package of libradixkv_net: no Go 1.$go_minor or later, or no pkg-config"
fi
# Root, by sudo, has no cargo: what is built is installed, and without that the reason is given.
mkdir "$work/tools"
for folder in /usr/local/bin /usr/bin /bin /usr/sbin /sbin; do
    ln -sf "$folder"/* "$work/tools"
done
rm -f "$work/tools/cargo"
by_sudo() { # CARGO_TARGET_DIR
    CARGO_TARGET_DIR=$1 PREFIX=$prefix PROFILE=dev HOME=$work PATH=$work/tools SUDO_UID=1000 \
        bash scripts/install_net.sh 2>&1
}
target=${CARGO_TARGET_DIR:-target}
built=$target/net/debug
rm -f "$built/libradixkv_net.made"
if said=$(by_sudo "$target") || [[ $said != *"as yourself: make net"* ]]; then
    echo "net_package.sh: by sudo, with what another command built: $said" >&2
    exit 1
fi
bash scripts/built.sh make radixkv_net cargo build --locked --manifest-path net/Cargo.toml \
    --target-dir "$target/net"
said=$(by_sudo "$target")
[[ $said == *"libradixkv_net.so of 2"* && $said == *"LD_LIBRARY_PATH=$prefix/lib"* ]] ||
    { echo "net_package.sh: by sudo: $said" >&2; exit 1; }
if said=$(by_sudo "$work/nothing") || [[ $said != *"as yourself: make net"* ]]; then
    echo "net_package.sh: by sudo, with nothing built: $said" >&2
    exit 1
fi
PREFIX=$prefix bash scripts/install_net.sh --uninstall
[ -z "$(find "$prefix" ! -type d)" ] || { echo "net_package.sh: files are left" >&2; exit 1; }
echo "programs find libradixkv_net $version by CMake and pkg-config"
