#!/usr/bin/env bash
# Attention on the CPU beside PyTorch's scaled_dot_product_attention, which gets K and V gathered.
#
#   scripts/bench_attention.sh                  all shapes on one thread and on all, as a table
#   scripts/bench_attention.sh --threads 2      that many threads
#   scripts/bench_attention.sh --rounds 20      more turns (7)
#   scripts/bench_attention.sh --only decode    shapes whose name contains the word
#
# Both take turns, a call at a time, so that whatever else the machine does meets both; a ratio is
# the median over the turns. PyTorch is installed, once, into RKV_TORCH_VENV, by default
# ~/.cache/radixkv/torch: three GB.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${RKV_TORCH_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/radixkv/torch}
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install "torch${RKV_TORCH_VERSION:+==$RKV_TORCH_VERSION}" numpy >&2
fi

cargo build --release --bench attention
program=$(cargo build --release --bench attention --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*attention-[^"]*\)".*/\1/p' | tail -1)

exec "$venv/bin/python" benches/attention/compare.py "$program" "$@"
