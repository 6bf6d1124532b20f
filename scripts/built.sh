#!/usr/bin/env bash
# Whether libraries are still those that `make build` or `make net` made of this tree. Tests and
# other commands build into the same folder, perhaps without kernels, and the tree may be newer.
#
#   scripts/built.sh make NAME CARGO...      builds, and notes beside the library what it is made of
#   scripts/built.sh check NAME FOLDER       NAME is radixkv or radixkv_net
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1-} name=${2-}
case $what:$name in
make:radixkv | check:radixkv) sources=(build.rs Cargo.toml Cargo.lock src kernels include) ;;
make:radixkv_net | check:radixkv_net)
    sources=(net/build.rs net/Cargo.{toml,lock} net/src include/radixkv_net.h)
    ;;
*) sed -n '5,6s/^# *//p' "$0" >&2; exit 2 ;;
esac
shift 2

of_tree() { find "${sources[@]}" -type f -exec sha256sum {} + | LC_ALL=C sort; }
of_library() { (cd "$1" && sha256sum "lib$name".{so,a}); } # folder

if [ "$what" = check ]; then
    list=$1/lib$name.made
    [ -f "$list" ] && [ "$(of_library "$1" && of_tree)" = "$(cat "$list")" ]
    exit
fi
# Files that are saved while it builds are read by then, or not.
tree=$(of_tree)
# It says itself which files it made, or found made: a file of its own may name another folder.
said=$("$@" --message-format=json-render-diagnostics)
folder=$(sed -n "s|.*\"\([^\"]*\)/lib$name\.so\".*|\1|p" <<<"$said" | tail -n 1)
[ -n "$folder" ] || exit 0
library=$(of_library "$folder") # at once: others wait to build there
if [ "$(of_tree)" = "$tree" ]; then
    printf '%s\n' "$library" "$tree" >"$folder/lib$name.made"
else
    echo "The tree changed meanwhile: before lib$name is installed by sudo, make it again" >&2
fi
