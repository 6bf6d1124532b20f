#!/usr/bin/env bash
# Installs the library, its headers, its pkg-config file and its CMake package.
#
#   PREFIX=/usr/local DESTDIR= LIBDIR=lib scripts/install.sh [--uninstall]
#
# Cargo builds what is not built yet. Without cargo, as under sudo, what `make build` made of this
# tree is taken.
# A script rather than cargo-c: that is four hundred crates to build before the first file can be
# copied, for what two compiler flags and fifty lines do.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

prefix=${PREFIX:-/usr/local} libdir=${LIBDIR:-lib} root=${DESTDIR-}
case $prefix in /*) ;; *) echo "PREFIX must be an absolute path" >&2; exit 2 ;; esac
case $libdir in /*) echo "LIBDIR is relative to PREFIX" >&2; exit 2 ;; esac
prefix=${prefix%/} libdir=${libdir%/} # as shells complete folders

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Before 1.0 a minor release may change the ABI, so it is part of the SONAME. See docs/ABI.md.
soname=libradixkv.so.${version%.*}

include=$root$prefix/include
lib=$root$prefix/$libdir
cmake=$lib/cmake/radixkv
parts=(include/radixkv/*.hpp) # of radixkv.hpp
installed=("$include"/radixkv{,_spatial}.h "$include/radixkv.hpp" "${parts[@]/#include/$include}"
    "$lib"/libradixkv.{a,so} "$lib/$soname" "$lib/libradixkv.so.$version"
    "$lib/pkgconfig"/radixkv{,-static}.pc "$cmake"/radixkvConfig{,Version}.cmake)

case ${1-} in
--uninstall)
    rm -f "${installed[@]}"
    rmdir "$cmake" "$include/radixkv" 2>/dev/null || true
    exit 0
    ;;
'') ;;
*) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

target=${CARGO_TARGET_DIR:-target}
# What is built for a target that is named lies in a folder of its own.
release=$target${CARGO_BUILD_TARGET:+/$CARGO_BUILD_TARGET}/release
built=("$release"/libradixkv.{so,a})
# Root has another cargo, or none, and should leave no files of its own in somebody's target folder.
is_built() { [ -f "${built[0]}" ] && [ -f "${built[1]}" ]; }
if is_built && { [ -n "${SUDO_UID-}" ] || ! command -v cargo >/dev/null; }; then
    # Headers and SONAME come from this tree, and the library has to fit them.
    bash scripts/built.sh check radixkv "$release" || {
        echo "error: ${built[0]} is not what is built of this tree, or not by \`make build\`." >&2
        echo 'First, as yourself: make build' >&2
        exit 1
    }
    echo "installing ${built[0]} of $(date -r "${built[0]}" '+%F %T')" >&2
elif [ -n "${SUDO_UID-}" ] && ! command -v cargo >/dev/null; then
    echo 'error: nothing is built yet. First, as yourself: make build' >&2
    exit 1
else
    bash scripts/tools.sh build >&2
    # Wherever it is told to build otherwise (build.target-dir).
    cargo build --locked --release --target-dir "$target"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
native=$(bash scripts/link_with_soname.sh "$release" radixkv "$soname" "$work/libradixkv.so")

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
install -m 644 include/radixkv{,_spatial}.h include/radixkv.hpp "$include"
install -m 644 "${parts[@]}" "$include/radixkv"
install -m 644 "${built[1]}" "$lib"
install -m 755 "$work/libradixkv.so" "$lib/libradixkv.so.$version"
ln -sf "libradixkv.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libradixkv.so"
fill cmake/radixkv.pc.in "$lib/pkgconfig/radixkv.pc"
fill cmake/radixkv-static.pc.in "$lib/pkgconfig/radixkv-static.pc"
fill cmake/radixkvConfig.cmake.in "$cmake/radixkvConfig.cmake"
fill cmake/radixkvConfigVersion.cmake.in "$cmake/radixkvConfigVersion.cmake"
printf 'installed %s\n' "${installed[@]}"

# Programs start only when the loader knows the library. It does in the folders of its cache.
[ -z "$root" ] || exit 0
export PATH="$PATH:/usr/sbin:/sbin"
source scripts/loader.sh
if is_searched "$lib"; then
    tell_loader "$lib" "$soname"
else
    echo "The loader does not search $lib. Link programs with -Wl,-rpath,$lib,"
    echo "or start them with LD_LIBRARY_PATH=$lib. pkg-config needs"
    echo "PKG_CONFIG_PATH=$lib/pkgconfig, CMake -DCMAKE_PREFIX_PATH=$prefix."
fi
