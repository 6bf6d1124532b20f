#!/usr/bin/env bash
# Whether libraries are still those that `make build` or `make net` made of this tree. Tests and
# other commands build into the same folder, perhaps without kernels, and the tree may be newer.
#
#   scripts/built.sh note|check FOLDER NAME    NAME is radixkv or radixkv_net
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1-} folder=${2-} name=${3-}
case $what:$name in
note:radixkv | check:radixkv) sources=(build.rs Cargo.toml Cargo.lock src kernels include) ;;
note:radixkv_net | check:radixkv_net)
    sources=(net/build.rs net/Cargo.{toml,lock} net/src include/radixkv_net.h)
    ;;
*) sed -n '5s/^# *//p' "$0" >&2; exit 2 ;;
esac
list=$folder/lib$name.made

sums() {
    find "${sources[@]}" -type f -exec sha256sum {} + | LC_ALL=C sort
    (cd "$folder" && sha256sum "lib$name".{so,a})
}

if [ "$what" = check ]; then
    [ -f "$list" ] && [ "$(sums)" = "$(cat "$list")" ]
elif [ -f "$folder/lib$name.so" ]; then # a file of cargo's may name another folder
    sums >"$list"
fi
