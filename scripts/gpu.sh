#!/usr/bin/env bash
# Everything that only a GPU can show, in one go: the tests of the CUDA backend against attention
# in f64 on poisoned memory, compute-sanitizer, the reference engine with --device cuda (its test,
# and prefix caching in a model of the size of Llama 3.2 1B), and the table of target shapes; on
# Hopper for attn_sm90 besides attn_mma.
#
#   scripts/gpu.sh pack            build, and put what is needed into target/gpu, and that into
#                                  target/gpu.tar.xz: needs cargo, nvcc
#   scripts/gpu.sh run [folder [stage...]]
#                                  run what was packed: needs a GPU and its driver, no network,
#                                  no compiler; results go to folder (target/gpu/results). Stages:
#                                  tests, sanitizer, engine, shapes. The engine needs cuBLAS, of
#                                  the CUDA toolkit or from PyPI
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
    pack_engine
    # It travels: what only a debugger would read stays here.
    find "$pack" -type f -perm -u+x -exec strip --strip-debug {} + 2>/dev/null || true
    git rev-parse --short HEAD >"$pack/commit"
    tar -C "$(dirname "$pack")" --exclude=results --exclude=model -c "$(basename "$pack")" |
        xz -T0 -6 >"$pack.tar.xz"
    du -sh "$pack" "$pack.tar.xz"
}

pack_engine() { # its programs, and the libraries that another machine may not have
    RADIXKV_CUDA=1 bash scripts/engine.sh build
    local engine=target/engine to=$pack/engine
    mkdir -p "$to"
    cp "$engine/engine_bench" "$engine/make_checkpoint" "$engine/tests/test_cuda" "$to/"
    ldd "$engine/engine_bench" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
        grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' | xargs -I{} cp -L {} "$to/"
}

cublas_folder() { # prints where it is when the loader would not find it
    ldconfig -p 2>/dev/null | grep -q 'libcublas\.so' && return
    python3 - <<'PYTHON' 2>/dev/null || true
import glob, site
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for found in glob.glob(folder + "/nvidia/*/lib/libcublas.so.*"):
        print(found.rsplit("/", 1)[0])
        raise SystemExit
PYTHON
}

stage_engine() { # results
    local results=$1 engine
    engine=$(realpath "$pack/engine")
    export LD_LIBRARY_PATH="$engine:$(cublas_folder):${LD_LIBRARY_PATH:-}"
    "$engine/test_cuda" 2>&1 | tee "$results/engine-test.log" || return 1
    if [ ! -f "$engine/model/config.json" ]; then
        "$engine/make_checkpoint" --layers 16 --hidden 2048 --inner 8192 --heads 32 \
            --kv-heads 8 --out "$engine/model" || return 1
    fi
    # It fails too when outputs differ, and they may: cuBLAS adds in another order for another batch
    # size, and a model with random weights has many near ties. The table says whether they do.
    rm -f "$results/engine.json"
    "$engine/engine_bench" --model "$engine/model" --device cuda --workload prefix_caching \
        --max-output 64 --kv-mib 4096 --json "$results/engine.json" |
        tee "$results/engine.txt" || true
    [ -f "$results/engine.json" ]
}

built() { # cargo options; prints the program
    RADIXKV_CUDA=1 cargo test --locked --release --no-run --message-format=json "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

run() { # [results [stage...]]
    local results=${1:-$pack/results} failed=0 stage
    shift $(($# > 0))
    mkdir -p "$results"
    results=$(realpath "$results")
    cp "$pack/commit" "$results/"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader \
        >"$results/device" || echo "unknown" >"$results/device"
    export RKV_CUDA_DRIVER=system
    for stage in ${*:-tests sanitizer engine shapes}; do
        echo "== $stage"
        ("stage_$stage" "$results") || { echo "FAIL $stage"; failed=1; }
    done
    return $failed
}

stage_tests() { # results
    local failed=0
    # One at a time: they share the device.
    RKV_CUDA_MATRIX=1 "$pack/tests" --test-threads=1 >"$1/tests.log" 2>&1 || failed=1
    grep -E '^(test result|test .*FAILED|SKIP)' "$1/tests.log" || true
    return $failed
}

stage_sanitizer() { # results
    if ! command -v compute-sanitizer >/dev/null; then
        echo "SKIP compute-sanitizer: it is not installed" | tee "$1/sanitizer.txt"
        return
    fi
    for tool in memcheck racecheck synccheck initcheck; do
        compute-sanitizer --tool $tool --error-exitcode 9 "$pack/tests" --test-threads=1 \
            steps:: hopper:: >"$1/$tool.log" 2>&1 && echo "PASS $tool" || echo "FAIL $tool"
    done | tee "$1/sanitizer.txt"
    ! grep -q FAIL "$1/sanitizer.txt"
}

stage_shapes() { # results
    "$pack/bench" | tee "$1/shapes.tsv" || return 1
    if python3 -c 'import torch' 2>/dev/null; then
        python3 "$pack/gpu_torch.py" | tee "$1/torch.tsv"
    else
        echo "SKIP torch: it is not installed, so there is nothing to compare with"
        : >"$1/torch.tsv"
    fi
}

docs() {
    python3 scripts/gpu_docs.py "$1" docs/PERFORMANCE.md
}

case ${1:-all} in
pack) pack ;;
run) shift; run "$@" ;;
docs) docs "${2:?the folder with the results}" ;;
all) pack && run && docs "$pack/results" ;;
*) sed -n '2,17p' "$0"; exit 2 ;;
esac
