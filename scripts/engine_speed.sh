#!/usr/bin/env bash
# How fast the reference engine computes SmolLM2-135M-Instruct, beside llama.cpp with the same
# weights: tokens per second of a prompt of 1024, and of decoding after 512, one sequence and eight.
# Prints a table in Markdown. The first run builds both, some minutes.
#
#   scripts/engine_speed.sh [ROUNDS]
#
# Each round runs all of them one after another; the best of five counts.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/logged.sh

rounds=${1:-5}
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || {
    echo "usage: $0 [ROUNDS]" >&2
    exit 2
}

bash scripts/engine.sh speed
model=$(bash scripts/model.sh)
quantised=$(bash scripts/model.sh gguf)
llama_cpp=$(bash scripts/llama_cpp.sh build)
engine=${CARGO_TARGET_DIR:-target}/engine/engine_speed
threads=$(nproc)
out=${CARGO_TARGET_DIR:-target}/model

for weights in bf16 f32; do
    file=$out/SmolLM2-135M-Instruct.$weights.gguf
    [ -f "$file" ] || {
        "$llama_cpp/convert_gguf" --model "$quantised" --out "$file.part" --weights $weights
        mv "$file.part" "$file"
    }
done

subjects=(
    "engine, \`--gemm packed\`|$engine --model $model --gemm packed"
    "engine, \`--gemm blas\`|$engine --model $model --gemm blas"
    "llama.cpp, bf16|$llama_cpp/llama_cpp_speed --model $out/SmolLM2-135M-Instruct.bf16.gguf"
    "llama.cpp, f32|$llama_cpp/llama_cpp_speed --model $out/SmolLM2-135M-Instruct.f32.gguf"
    "llama.cpp, Q4_1|$llama_cpp/llama_cpp_speed --model $quantised"
)
results=$out/speed.tsv
if ! said=$($engine --model "$model" --gemm blas --prompt 1 --steps 1 --rounds 1 2>&1); then
    echo "without --gemm blas: $said" >&2
    unset 'subjects[1]'
fi
: >"$results"
for ((round = 1; round <= rounds; ++round)); do
    echo "round $round of $rounds ..." >&2
    for subject in "${subjects[@]}"; do
        # shellcheck disable=SC2086 # a command with its arguments
        line=$(${subject#*|} --threads "$threads" --rounds 1)
        printf '%s\t%s\n' "${subject%%|*}" "$line" >>"$results"
    done
done

sed -n 's/^model name[^:]*: */processor: /p' /proc/cpuinfo | head -1
echo "threads: $threads, rounds: $rounds"
echo
awk -F '\t' '
    !($1 in seen) { seen[$1] = ++count; names[count] = $1 }
    { for (i = 2; i <= 4; ++i) if ($i + 0 > best[$1, i]) best[$1, i] = $i + 0 }
    END {
        print "| tokens per second | prompt of 1024 | decoding, 1 | decoding, 8 |"
        print "|---|--:|--:|--:|"
        for (n = 1; n <= count; ++n)
            printf "| %s | %.0f | %.1f | %.0f |\n", names[n], best[names[n], 2],
                best[names[n], 3], best[names[n], 4]
    }' "$results"
