#!/usr/bin/env bash
# Compares the types of the built libraries with the blessed abi/radixkv.abi and
# abi/radixkv_net.abi; --bless accepts them. Names, numbers and layouts of the first are
# tests/abi.rs; this sees parameter types as well.
set -euo pipefail
cd "$(dirname "$0")/.."
unset CARGO_BUILD_TARGET # what is built here is looked at here

bless=${1-}
skip() { # why; a comparison can be left out, but not what is to be accepted
    [ "$bless" = --bless ] || { echo "SKIP abi: $1"; exit 0; }
    echo "error: abi/*.abi are as they were: $1" >&2
    exit 1
}
command -v abidiff >/dev/null || skip "abidiff is not installed (Debian: abigail-tools)"
[ "$(uname -sm)" = "Linux x86_64" ] ||
    skip "abi/*.abi describe Linux on x86-64, this is $(uname -sm)"

target=${CARGO_TARGET_DIR:-target}

compare() { # name, folder of the library, prefix of its functions
    local library=$2/lib$1.so now=$2/$1.abi
    abidw --drop-private-types --no-corpus-path --no-comp-dir-path --no-show-locs \
        --drop-undefined-syms --suppressions "abi/$1.suppr" --out-file "$now" "$library"

    # A library without debug information passes every comparison, so each export must have its
    # type.
    local exported typed
    exported=$(nm -D --defined-only "$library" | wc -l)
    typed=$(grep -c "<function-decl .*elf-symbol-id='$3" "$now" || true)
    if [ "$typed" -ne "$exported" ]; then
        echo "only $typed of $exported exports of $1 have types: build with debug = \"full\"" >&2
        exit 1
    fi

    if [ "$bless" = --bless ]; then
        # Where this machine keeps the sources of dependencies is nobody's business.
        sed "s|path='/[^']*/registry/src/[^/]*/|path='|" "$now" >"abi/$1.abi"
        echo "blessed $typed functions into abi/$1.abi"
    else
        abidiff "${options[@]}" "abi/$1.abi" "$now"
        echo "the types of $typed functions of $1 are the blessed ones"
    fi
}

cargo build --locked --profile abi --lib
options=(--no-added-syms) # tests/abi.rs has the names
compare radixkv "$target/abi" rkv_

# As its tests build it.
cargo build --locked --lib --manifest-path net/Cargo.toml --target-dir "$target/net"
options=()
compare radixkv_net "$target/net/debug" rkv_net_
