#!/usr/bin/env bash
# Builds the library and the reference engine (examples/engine) in target/engine. Then, by the first
# argument:
#   demo        users chat about one long system prompt, without caching and with it
#   serve ...   the HTTP server; further arguments are its options
#   bench ...   the benchmark client
#   build       none of these; the program that tests --device cuda is built too
#   speed       none of these; the program that scripts/engine_speed.sh runs is built too
# `demo` and `serve` have the model of scripts/model.sh, unless another one is named. `bench`, and
# who cannot fetch that one, has a small model with random weights. `--model hybrid` names one whose
# layers are gated delta nets and attention, as Qwen3-Next's are, and `--model window` one with
# sliding windows, as Gemma 3; a folder of such a name is ./hybrid.
# With nvcc 12.9 or later (CUDA_HOME, make cuda-toolchain, or on the PATH) they know --device cuda,
# unless RADIXKV_CUDA is 0.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
unset CARGO_BUILD_TARGET # what is built here runs here
source scripts/logged.sh
source scripts/nvcc.sh

target="${CARGO_TARGET_DIR:-target}"
out=$target/engine
random_model="$out/model"

what="${1:-demo}"
[ $# -eq 0 ] || shift
case "$what" in
demo | serve | bench | build | speed) ;;
*)
    echo "usage: $0 demo | serve [option...] | bench [option...] | build | speed" >&2
    exit 2
    ;;
esac

bash scripts/tools.sh engine >&2

options=() targets=(--target engine_server --target engine_bench --target make_checkpoint)
nvcc=OFF # or that of the library
[ "${RADIXKV_CUDA:-}" = 0 ] || nvcc=$(find_nvcc) || nvcc=OFF
# Each time: CMake remembers what it was told.
options+=(-DENGINE_NVCC="$nvcc")
case "$what" in
build) options+=(-DENGINE_TESTS=ON) targets+=(--target test_cuda) ;;
speed) targets+=(--target engine_speed) ;;
esac

mkdir -p "$out"
# Wherever it is told to build otherwise (build.target-dir).
cargo build --locked --release --target-dir "$target"
echo "building the engine ..." >&2
logged "$out/configure.log" cmake -S examples/engine -B "$out" \
    -DRADIXKV_LIBRARY="$(cd "$target/release" && pwd)/libradixkv.so" \
    -DENGINE_TEXT_TARGET="$(cd "$target" && pwd)/engine_text" "${options[@]}"
logged "$out/build.log" cmake --build "$out" -j "$(nproc)" "${targets[@]}"
case "$what" in build | speed) exit 0 ;; esac
[ -f "$random_model/config.json" ] || "$out/make_checkpoint" --out "$random_model"

make_kind() { # hybrid or window, folder
    case "$1" in
    hybrid) "$out/make_checkpoint" --architecture qwen3-next --layers 4 --out "$2" ;;
    window) "$out/make_checkpoint" --architecture gemma3 --layers 6 --out "$2" ;;
    esac
}

named=() before=''
for argument in "$@"; do
    case "$before $argument" in
    '--model hybrid' | '--model window')
        kind=$argument argument=$out/$argument
        [ -f "$argument/config.json" ] || make_kind "$kind" "$argument"
        ;;
    esac
    named+=("$argument")
    before=$argument
done
set -- "${named[@]}"

model=$random_model
case "$what $*" in
*" --model "* | *--help* | bench*) ;;
demo* | serve*)
    model=$(bash scripts/model.sh) || {
        echo "so the model is a small one with random weights, which says nothing sensible" >&2
        model=$random_model
    }
    ;;
esac

# Routers are told of the cache, and servers asked for pages, by a second library.
case " $* " in
*" --events "* | *" --remote-cache "*)
    cargo build --locked --release --manifest-path net/Cargo.toml --target-dir "$target/net"
    RADIXKV_NET_LIBRARY=$(realpath "$target/net/release/libradixkv_net.so")
    export RADIXKV_NET_LIBRARY
    ;;
esac

case "$what" in
demo)
    exec "$out/engine_bench" --model "$model" --workload chat \
        --json "$out/chat.json" --svg "$out/chat.svg" "$@"
    ;;
serve)
    # Everybody's prompts are on the page: not on an address that others can reach.
    case " $* " in
    *" --host "*) ;;
    *) set -- --page "$@" ;;
    esac
    exec "$out/engine_server" --model "$model" "$@"
    ;;
bench) exec "$out/engine_bench" --model "$model" "$@" ;;
esac
