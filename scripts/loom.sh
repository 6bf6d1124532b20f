#!/usr/bin/env bash
# Models of what threads do without a lock, tests/loom: scripts/loom.sh [argument of the tests...]
#
# RKV_LOOM_MORE=n   n preemptions more than usual in each run
set -euo pipefail
cd "$(dirname "$0")/.."
# Loom's atomics take the place of the standard library's in everything that is built.
export RUSTFLAGS="--cfg loom" RADIXKV_CUDA=0 CARGO_PROFILE_TEST_OPT_LEVEL=1
exec cargo test --locked --lib --target-dir "${CARGO_TARGET_DIR:-target}/loom" -- models:: "$@"
