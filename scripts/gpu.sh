#!/usr/bin/env bash
# Everything that only a GPU can show, in one go: the tests of the CUDA backend against attention
# in f64 on poisoned memory, compute-sanitizer, and the table of target shapes; on Hopper for
# attn_sm90 besides attn_mma.
#
#   scripts/gpu.sh pack            build, and put what is needed into target/gpu: needs cargo, nvcc
#   scripts/gpu.sh run [folder]    run what was packed: needs a GPU and its driver, no network,
#                                  no compiler; results go to folder (target/gpu/results)
#   scripts/gpu.sh docs folder     write the results into docs/PERFORMANCE.md
#   scripts/gpu.sh                 pack, run and docs
set -euo pipefail
cd "$(dirname "$0")/.."
pack=${RADIXKV_GPU_PACK:-${CARGO_TARGET_DIR:-target}/gpu}

pack() {
    RADIXKV_CUDA=1 cargo build --locked --release
    local test bench
    test=$(built --test cuda)
    bench=$(RADIXKV_CUDA=1 built --bench cuda)
    mkdir -p "$pack"
    cp "$test" "$pack/tests"
    cp "$bench" "$pack/bench"
    cp scripts/gpu_torch.py "$pack/"
    git rev-parse --short HEAD >"$pack/commit"
    du -sh "$pack"
}

built() { # cargo options; prints the program
    RADIXKV_CUDA=1 cargo test --locked --release --no-run --message-format=json "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

run() {
    local results=${1:-$pack/results} failed=0
    mkdir -p "$results"
    results=$(realpath "$results")
    cp "$pack/commit" "$results/"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader \
        >"$results/device" || echo "unknown" >"$results/device"
    export RKV_CUDA_DRIVER=system

    echo "== tests"
    # One at a time: they share the device.
    RKV_CUDA_MATRIX=1 "$pack/tests" --test-threads=1 >"$results/tests.log" 2>&1 || failed=1
    grep -E '^(test result|test .*FAILED|SKIP)' "$results/tests.log" || true

    echo "== compute-sanitizer"
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck synccheck initcheck; do
            compute-sanitizer --tool $tool --error-exitcode 9 "$pack/tests" --test-threads=1 \
                steps:: hopper:: >"$results/$tool.log" 2>&1 && echo "PASS $tool" ||
                { echo "FAIL $tool"; failed=1; }
        done | tee "$results/sanitizer.txt"
        ! grep -q FAIL "$results/sanitizer.txt" || failed=1
    else
        echo "SKIP compute-sanitizer: it is not installed" | tee "$results/sanitizer.txt"
    fi

    echo "== shapes"
    "$pack/bench" | tee "$results/shapes.tsv"
    if python3 -c 'import torch' 2>/dev/null; then
        python3 "$pack/gpu_torch.py" | tee "$results/torch.tsv"
    else
        echo "SKIP torch: it is not installed, so there is nothing to compare with"
        : >"$results/torch.tsv"
    fi
    return $failed
}

docs() {
    python3 scripts/gpu_docs.py "$1" docs/PERFORMANCE.md
}

case ${1:-all} in
pack) pack ;;
run) run "${2:-}" ;;
docs) docs "${2:?the folder with the results}" ;;
all) pack && run && docs "$pack/results" ;;
*) sed -n '2,10p' "$0"; exit 2 ;;
esac
