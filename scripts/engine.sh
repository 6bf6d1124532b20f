#!/usr/bin/env bash
# Builds the library, the reference engine (examples/engine) and a small model for it, in
# target/engine. Then, by the first argument:
#   demo        48 requests with a shared system prompt, without caching and with it
#   serve ...   the HTTP server; further arguments are its options
#   bench ...   the benchmark client
#   build       none of these; the program that tests --device cuda is built too
# With nvcc (CUDA_HOME, make cuda-toolchain, or on the PATH) they know --device cuda, unless
# RADIXKV_CUDA is 0.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
source scripts/logged.sh

target="${CARGO_TARGET_DIR:-target}"
out=target/engine
model="$out/model"

what="${1:-demo}"
[ $# -eq 0 ] || shift
case "$what" in
demo | serve | bench | build) ;;
*)
    echo "usage: $0 demo | serve [option...] | bench [option...] | build" >&2
    exit 2
    ;;
esac

bash scripts/tools.sh engine >&2

options=() targets=(--target engine_server --target engine_bench --target make_checkpoint)
toolchain=$target/cuda/home/bin/nvcc
if [ "${RADIXKV_CUDA:-}" = 0 ]; then
    options+=(-DENGINE_NVCC=OFF)
elif [ -z "${CUDA_HOME:-}" ] && [ -x "$toolchain" ]; then
    options+=(-DENGINE_NVCC="$(realpath -s "$toolchain")")
fi
if [ "$what" = build ]; then
    options+=(-DENGINE_TESTS=ON) targets+=(--target test_cuda)
fi

mkdir -p "$out"
cargo build --locked --release
echo "building the engine ..." >&2
logged "$out/configure.log" cmake -S examples/engine -B "$out" \
    -DRADIXKV_LIBRARY="$(cd "$target/release" && pwd)/libradixkv.so" "${options[@]}"
logged "$out/build.log" cmake --build "$out" -j "$(nproc)" "${targets[@]}"
[ "$what" != build ] || exit 0
[ -f "$model/config.json" ] || "$out/make_checkpoint" --out "$model"

case "$what" in
demo)
    exec "$out/engine_bench" --model "$model" --workload prefix_caching --max-output 64 \
        --json "$out/prefix_caching.json" --svg "$out/prefix_caching.svg" "$@"
    ;;
serve) exec "$out/engine_server" --model "$model" "$@" ;;
bench) exec "$out/engine_bench" --model "$model" "$@" ;;
esac
