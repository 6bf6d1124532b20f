#!/usr/bin/env bash
# Compares the types of the built library with the blessed abi/radixkv.abi; --bless accepts them.
# Names, numbers and layouts are tests/abi.rs; this sees parameter types as well.
set -euo pipefail
cd "$(dirname "$0")/.."

baseline=abi/radixkv.abi
if ! command -v abidiff >/dev/null; then
    echo "SKIP abi: abidiff is not installed (Debian: abigail-tools)"
    exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "SKIP abi: $baseline describes Linux on x86-64, this is $(uname -sm)"
    exit 0
fi

target=${CARGO_TARGET_DIR:-target}
cargo build --locked --profile abi --lib
library=$target/abi/libradixkv.so
now=$target/abi/radixkv.abi
abidw --drop-private-types --no-corpus-path --no-comp-dir-path --no-show-locs \
    --drop-undefined-syms --suppressions abi/radixkv.suppr --out-file "$now" "$library"

# A library without debug information passes every comparison, so each export must have its type.
exported=$(nm -D --defined-only "$library" | wc -l)
typed=$(grep -c "<function-decl .*elf-symbol-id='rkv_" "$now" || true)
if [ "$typed" -ne "$exported" ]; then
    echo "only $typed of $exported exports have types: build with debug = \"full\"" >&2
    exit 1
fi

if [ "${1-}" = --bless ]; then
    cp "$now" "$baseline"
    echo "blessed $typed functions into $baseline"
else
    abidiff --no-added-syms "$baseline" "$now"
    echo "the types of $typed functions are the blessed ones"
fi
