#!/usr/bin/env bash
# Installs the library, its headers, its pkg-config file and its CMake package.
#
#   PREFIX=/usr/local DESTDIR= LIBDIR=lib scripts/install.sh [--uninstall]
#
# A script rather than cargo-c: that is four hundred crates to build before the first file can be
# copied, for what two compiler flags and fifty lines do.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

prefix=${PREFIX:-/usr/local} libdir=${LIBDIR:-lib} root=${DESTDIR-}
case $prefix in /*) ;; *) echo "PREFIX must be an absolute path" >&2; exit 2 ;; esac
case $libdir in /*) echo "LIBDIR is relative to PREFIX" >&2; exit 2 ;; esac

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Before 1.0 a minor release may change the ABI, so it is part of the SONAME. See docs/ABI.md.
soname=libradixkv.so.${version%.*}

include=$root$prefix/include
lib=$root$prefix/$libdir
cmake=$lib/cmake/radixkv
parts=(include/radixkv/*.hpp) # of radixkv.hpp
installed=("$include"/radixkv.{h,hpp} "${parts[@]/#include/$include}"
    "$lib"/libradixkv.{a,so} "$lib/$soname" "$lib/libradixkv.so.$version"
    "$lib/pkgconfig/radixkv.pc" "$cmake"/radixkvConfig{,Version}.cmake)

case ${1-} in
--uninstall)
    rm -f "${installed[@]}"
    rmdir "$cmake" "$include/radixkv" 2>/dev/null || true
    exit 0
    ;;
'') ;;
*) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

command -v cargo >/dev/null || {
    echo 'cargo is not in PATH; as root: sudo env "PATH=$PATH" make install' >&2
    exit 1
}

# Its own target folder: in target/release the library has no SONAME, because programs that are
# linked there would look for a libradixkv.so.0.1 that cargo does not create.
target=${CARGO_TARGET_DIR:-target}/install
said=$(cargo rustc --locked --release --lib --crate-type cdylib,staticlib --target-dir "$target" \
    -- -C link-arg=-Wl,-soname,"$soname" --print native-static-libs 2>&1) ||
    { printf '%s\n' "$said" >&2; exit 1; }
native=$(sed -n 's/^note: native-static-libs: //p' <<<"$said" | tail -n 1)
[ -n "$native" ] || { echo "rustc did not say what the static library needs" >&2; exit 1; }

depth=$(tr -cd / <<<"$libdir/" | wc -c) # from libdir up to the prefix
up=$(printf '../%.0s' $(seq $((depth + 2))))
literal() { sed 's/[&|\\]/\\&/g' <<<"$1"; }
fill() {
    sed -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" -e "s|@NATIVE@|$native|g" \
        -e "s|@NATIVE_LIST@|${native// /;}|g" \
        -e "s|@LIBDIR@|$(literal "$libdir")|g" -e "s|@PREFIX@|$(literal "$prefix")|g" \
        -e "s|@UP@|${up%/}|g" "$1" >"$2"
    chmod 644 "$2"
}

install -d "$include/radixkv" "$lib/pkgconfig" "$cmake"
install -m 644 include/radixkv.h include/radixkv.hpp "$include"
install -m 644 "${parts[@]}" "$include/radixkv"
install -m 644 "$target/release/libradixkv.a" "$lib"
install -m 755 "$target/release/libradixkv.so" "$lib/libradixkv.so.$version"
ln -sf "libradixkv.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libradixkv.so"
fill cmake/radixkv.pc.in "$lib/pkgconfig/radixkv.pc"
fill cmake/radixkvConfig.cmake.in "$cmake/radixkvConfig.cmake"
fill cmake/radixkvConfigVersion.cmake.in "$cmake/radixkvConfigVersion.cmake"
printf 'installed %s\n' "${installed[@]}"
