#!/usr/bin/env bash
# Installs libradixkv_net: the header, the libraries, the pkg-config file, the CMake package.
#
#   PREFIX=/usr/local DESTDIR= LIBDIR=lib scripts/install_net.sh [--uninstall]
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

prefix=${PREFIX:-/usr/local} libdir=${LIBDIR:-lib} root=${DESTDIR-}
case $prefix in /*) ;; *) echo "PREFIX must be an absolute path" >&2; exit 2 ;; esac
case $libdir in /*) echo "LIBDIR is relative to PREFIX" >&2; exit 2 ;; esac
prefix=${prefix%/} libdir=${libdir%/} # as shells complete folders
version=$(sed -n 's/^version = "\(.*\)"/\1/p' net/Cargo.toml | head -n 1)
soname=libradixkv_net.so.${version%.*} # as for libradixkv.so, docs/ABI.md
include=$root$prefix/include lib=$root$prefix/$libdir
cmake=$lib/cmake/radixkv_net
installed=("$include/radixkv_net.h" "$lib"/libradixkv_net.{a,so} "$lib/$soname"
    "$lib/libradixkv_net.so.$version" "$lib/pkgconfig/radixkv_net.pc"
    "$cmake"/radixkv_netConfig{,Version}.cmake)

case ${1-} in
--uninstall)
    rm -f "${installed[@]}"
    rmdir "$cmake" 2>/dev/null || true
    exit 0
    ;;
'') ;;
*) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

# PROFILE is for the test of the package, which needs no quick library.
profile=${PROFILE:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/net")
built=$target${CARGO_BUILD_TARGET:+/$CARGO_BUILD_TARGET}/${profile/#dev/debug}
# As in install.sh: root has another cargo, or none, and should leave no files of its own here.
is_built() { [ -f "$built/libradixkv_net.so" ] && [ -f "$built/libradixkv_net.a" ]; }
if is_built && { [ -n "${SUDO_UID-}" ] || ! command -v cargo >/dev/null; }; then
    bash scripts/built.sh check radixkv_net "$built" || {
        echo "error: $built has not what is built of this tree, or not by \`make net\`." >&2
        echo 'First, as yourself: make net' >&2
        exit 1
    }
    echo "installing $built/libradixkv_net.so of $(date -r "$built/libradixkv_net.so" '+%F %T')" >&2
elif [ -n "${SUDO_UID-}" ] && ! command -v cargo >/dev/null; then
    echo 'error: nothing is built yet. First, as yourself: make net' >&2
    exit 1
else
    bash scripts/tools.sh build >&2
    cargo build --locked --profile "$profile" --manifest-path net/Cargo.toml --target-dir "$target"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
native=$(bash scripts/link_with_soname.sh "$built" radixkv_net "$soname" "$work/libradixkv_net.so")

install -d "$include" "$lib/pkgconfig" "$cmake"
install -m 644 include/radixkv_net.h "$include"
install -m 644 "$built/libradixkv_net.a" "$lib"
install -m 755 "$work/libradixkv_net.so" "$lib/libradixkv_net.so.$version"
ln -sf "libradixkv_net.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libradixkv_net.so"
cat >"$lib/pkgconfig/radixkv_net.pc" <<EOF
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: radixkv_net
Description: Publishes KV events of radixkv, and reaches stores on Redis, Valkey and S3
Version: $version
Libs: -L"\${libdir}" -lradixkv_net
Cflags: -I"\${includedir}"
EOF
chmod 644 "$lib/pkgconfig/radixkv_net.pc"

depth=$(tr -cd / <<<"$libdir/" | wc -c) # from libdir up to the prefix
up=$(printf '../%.0s' $(seq $((depth + 2))))
for part in radixkv_netConfig:radixkv_netConfig radixkvConfigVersion:radixkv_netConfigVersion; do
    sed -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" \
        -e "s|@NATIVE_LIST@|${native// /;}|g" -e "s|@LIBDIR@|$libdir|g" \
        -e "s|@UP@|${up%/}|g" "cmake/${part%:*}.cmake.in" \
        >"$cmake/${part#*:}.cmake"
    chmod 644 "$cmake/${part#*:}.cmake"
done
printf 'installed %s\n' "${installed[@]}"

# As in install.sh: programs start only when the loader knows the library.
[ -z "$root" ] || exit 0
export PATH="$PATH:/usr/sbin:/sbin"
source scripts/loader.sh
if is_searched "$lib"; then
    tell_loader "$lib" "$soname"
else
    echo "The loader does not search $lib. Link programs with -Wl,-rpath,$lib,"
    echo "or start them with LD_LIBRARY_PATH=$lib; Python needs"
    echo "RADIXKV_NET_LIBRARY=$lib/libradixkv_net.so."
fi
