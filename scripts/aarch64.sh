#!/usr/bin/env bash
# The library as it is compiled for aarch64, under qemu: a few tests of the index, that the CPU
# kernels are made of NEON's instructions, and all tests of attention (12 minutes).
# scripts/aarch64.sh [argument of the tests of attention...]
#
# With arguments it runs the tests of attention alone: `scripts/aarch64.sh heads_of_64`.
# Debian: gcc-aarch64-linux-gnu, qemu-user; Rust: rustup target add aarch64-unknown-linux-gnu
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "SKIP aarch64: $tool is not installed"; exit 0; }
done
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "SKIP aarch64: Rust has no standard library for it (rustup target add $target)"
    exit 0
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export RADIXKV_CUDA=0 CARGO_PROFILE_TEST_DEBUG=0
run() { # arguments of cargo test
    cargo test --locked --target "$target" --target-dir "${CARGO_TARGET_DIR:-target}/aarch64" "$@"
}

if (($# == 0)); then
    export RKV_MODEL_STEPS=${RKV_MODEL_STEPS:-20000}
    run --test model --test long_paths --test probes
    run --test abi rust_layouts_are_the_pinned_ones
fi

program=$(run --test attention --no-run 2>&1 | tee /dev/stderr |
    sed -n 's/.*(\(.*attention-[0-9a-f]*\))/\1/p')
# Four numbers at a time: multiplied and added in one instruction, in many places.
vectors=$(aarch64-linux-gnu-objdump -d "$program" | grep -cE 'fmla\s+v[0-9]+\.4s') || true
echo "$vectors instructions multiply and add four numbers"
((vectors > 200)) || { echo "the kernels are not made of vectors" >&2; exit 1; }
run --test attention -- "$@"
