#!/usr/bin/env bash
# Everything that only a GPU can show. A GPU is at hand rarely and for minutes, so every job has a
# time limit, tests run side by side, and after each job all results so far are in one archive that
# is whole at any moment: results.tgz beside the folder.
#
#   scripts/gpu.sh pack [peers]    build, and put what is needed into target/gpu, and that into
#                                  target/gpu.tar.xz: needs cargo, nvcc. RADIXKV_CUDA_ARCHS=90a
#                                  makes it small. With a folder of peers: what
#                                  gpu_peers.py needs to run others beside it
#   scripts/gpu.sh peers [folder]  make that folder (target/gpu-peers): FlashAttention-3 and
#                                  FlashMLA out of vLLM's wheel (330 MB from PyPI). FlashInfer is
#                                  run, too, if folder/site has it with the modules that it compiles
#   scripts/gpu.sh run [folder [stage...]]
#                                  run what was packed: needs a GPU and its driver, no network,
#                                  no compiler; results go to folder (target/gpu/results)
#   scripts/gpu.sh docs folder...  write the results into docs/PERFORMANCE.md; files of a later
#                                  folder stand for those of the ones before it
#   scripts/gpu.sh                 pack, run and docs
#
# Stages, in the order of what they tell:
#   first      7 minutes: one test of attn_sm90 for 20 s, so that a hang costs 20 s; all tests, side
#              by side (tests); then the shapes that say most, with the machine to themselves
#              (shapes)
#   second     10 minutes: PyTorch and other libraries beside it (peers), counters of kernels
#              (counters), and compute-sanitizer over small tests (sanitizers), which are stages too
#   record     9 minutes: the whole matrix and all shapes, for the documentation
#   engine     the reference engine with --device cuda: its test, and prefix caching in a model of
#              the size of Llama 3.2 1B. It needs cuBLAS, of the CUDA toolkit or from PyPI
set -euo pipefail
cd "$(dirname "$0")/.."
# Its FlashAttention-3 loads with any recent torch: that of older ones with their own alone.
vllm_version=0.32.0
pack=${RADIXKV_GPU_PACK:-${CARGO_TARGET_DIR:-target}/gpu}

pack() { # [peers]
    RADIXKV_CUDA=1 cargo build --locked --release
    local test bench
    test=$(built --test cuda)
    bench=$(RADIXKV_CUDA=1 built --bench cuda)
    mkdir -p "$pack"
    cp "$test" "$pack/tests"
    cp "$bench" "$pack/bench"
    cp scripts/gpu_torch.py scripts/gpu_peers.py "$pack/"
    if [ $# -gt 0 ] && ! [ "$1" -ef "$pack/peers" ]; then
        # Those that are there go when the others have come.
        rm -rf "$pack.peers"
        cp -r "$1" "$pack.peers"
        rm -rf "$pack/peers"
        mv "$pack.peers" "$pack/peers"
    fi
    pack_engine
    # It travels: what only a debugger would read stays here.
    find "$pack" -type f -perm -u+x -exec strip --strip-debug {} + 2>/dev/null || true
    git rev-parse --short HEAD >"$pack/commit"
    tar -C "$(dirname "$pack")" --exclude='results*' --exclude=model -c "$(basename "$pack")" |
        xz -T0 -6 >"$pack.tar.xz"
    du -sh "$pack" "$pack.tar.xz"
}

peers() { # [folder]
    local to=${1:-${CARGO_TARGET_DIR:-target}/gpu-peers} wheels
    mkdir -p "$to"
    wheels=$(mktemp -d "$to/wheels.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        -d "$wheels" "vllm==$vllm_version"
    python3 - "$wheels" "$to" <<'PYTHON'
import pathlib, sys, zipfile
folder, to = map(pathlib.Path, sys.argv[1:])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for part, library in (("_vllm_fa3_C", "fa3.so"), ("_flashmla_C", "flashmla.so")):
        (name,) = (name for name in archive.namelist() if part in name)
        (to / library).write_bytes(archive.read(name))
PYTHON
    rm -r "$wheels"
    du -sh "$to"
}

pack_engine() { # its programs, and the libraries that another machine may not have
    RADIXKV_CUDA=1 bash scripts/engine.sh build
    local engine=${CARGO_TARGET_DIR:-target}/engine to=$pack/engine
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

stage_engine() {
    local engine
    engine=$(realpath "$pack/engine")
    export LD_LIBRARY_PATH="$engine:$(cublas_folder):${LD_LIBRARY_PATH:-}"
    job engine-test 300 "$engine/test_cuda" || return 1
    if [ ! -f "$engine/model/config.json" ]; then
        "$engine/make_checkpoint" --layers 16 --hidden 2048 --inner 8192 --heads 32 \
            --kv-heads 8 --out "$engine/model" || return 1
    fi
    # It fails too when outputs differ, and they may: cuBLAS adds in another order for another batch
    # size, and a model with random weights has many near ties. The table says whether they do.
    rm -f "$results/engine.json"
    job engine 300 "$engine/engine_bench" --model "$engine/model" --device cuda \
        --workload prefix_caching --max-output 64 --kv-mib 4096 \
        --json "$results/engine.json" || true
    [ -f "$results/engine.json" ]
}

built() { # cargo options; prints the program
    RADIXKV_CUDA=1 cargo test --locked --release --no-run --message-format=json "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

run() { # [results [stage...]]
    local failed=0 stage device
    results=${1:-$pack/results}
    shift $(($# > 0))
    mkdir -p "$results"
    results=$(realpath "$results")
    device=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader) ||
        device=unknown
    # What is published has one commit and one device.
    if [ -f "$results/commit" ] &&
        [ "$(cat "$results"/{commit,device})" != "$(cat "$pack/commit")"$'\n'"$device" ]; then
        echo "$results are of another commit or device, and are put aside" >&2
        mv -T --backup=numbered "$results" "$results.$(cat "$results/commit")"
        mkdir "$results"
    fi
    cp "$pack/commit" "$results/"
    echo "$device" >"$results/device"
    export RKV_CUDA_DRIVER=system PYTHONUNBUFFERED=1
    for stage in ${*:-first second record engine}; do
        echo "== stage $stage"
        "stage_$stage" || { echo "FAIL $stage"; failed=1; }
    done
    return $failed
}

# A job with a time limit: its log, and a line about it.
job() { # name seconds command...
    local name=$1 limit=$2 begin=$SECONDS status=0
    shift 2
    timeout -k 3 "$limit" "$@" >"$results/$name.log" 2>&1 || status=$?
    echo "== $name: status $status, $((SECONDS - begin)) s" \
        "$(grep -aE '^test result|^test .*FAILED|SKIP|(ERROR|RACECHECK) SUMMARY|panicked' \
            "$results/$name.log" | cut -c1-180 | head -4 | tr '\n' '|')"
    keep
    return $status
}

# Jobs side by side, each in a line: a name, seconds, and arguments of the tests.
side_by_side() {
    local name limit arguments pids=() failed=0
    while read -r name limit arguments; do
        # shellcheck disable=SC2086 # they are several
        job "$name" "$limit" "$pack/tests" --test-threads=1 $arguments &
        pids+=($!)
    done
    for name in "${pids[@]}"; do wait "$name" || failed=1; done
    return $failed
}

keep() { # all results so far, in an archive that is never half written
    local part
    part=$(mktemp "$results.XXXXXX")
    tar -C "$results" -czf "$part" . 2>/dev/null || true
    mv "$part" "$results.tgz"
}

stage_first() {
    local failed=0 kernels=
    # A kernel that hangs costs its limit once, not for every shape.
    job smoke 20 "$pack/tests" --test-threads=1 cuda::hopper::k20 || { failed=1; kernels=mma; }
    stage_tests || failed=1
    stage_shapes || failed=1
    return $failed
}

stage_tests() {
    local failed=0
    side_by_side <<'JOBS' || failed=1
steps 150 cuda::steps:: cuda::trees:: cuda::groups::
hopper 150 cuda::hopper::
long-heads 150 cuda::long_heads::
graphs 150 cuda::graph cuda::shared_plan:: cuda::streams::
pages 150 cuda::tier:: cuda::moves::
others 150 cuda::driver:: cuda::runner:: cuda::contexts:: cuda::matrix::every
JOBS
    return $failed
}

stage_shapes() {
    local failed=0 shape
    job tiers 60 "$pack/bench" tiers || failed=1
    : >"$results/shapes.tsv"
    for shape in M1 P3 D2 A3 D1 M2 M3 M4 M5 M6 P1 A5 A6 C1 A1 A8 D3 P5 P6 W1 H1 L1; do
        timeout -k 3 40 "$pack/bench" "$shape" ${kernels:-} 2>&1 | head_once |
            tee -a "$results/shapes.tsv" || failed=1
        keep
    done
    return $failed
}

stage_second() {
    local failed=0
    stage_peers || failed=1
    stage_counters
    stage_sanitizers || failed=1
    return $failed
}

stage_peers() {
    local failed=0
    if ! python3 -c 'import torch' 2>/dev/null; then
        echo "SKIP torch and peers: torch is not installed, so there is nothing to compare with"
        return
    fi
    if job torch 60 python3 "$pack/gpu_torch.py"; then
        cp "$results/torch.log" "$results/torch.tsv"
    else
        failed=1
    fi
    if [ -d "$pack/peers" ]; then
        job peers 130 python3 "$pack/gpu_peers.py" "$pack/peers" || failed=1
        grep -a $'\t' "$results/peers.log" >"$results/peers.tsv" || true
    fi
    return $failed
}

stage_counters() {
    if ! command -v ncu >/dev/null; then
        echo "SKIP counters: ncu is not installed"
        return
    fi
    counters p1 sm90 P1 sm90
    counters p1-mma rows128 P1 mma
    counters d2 rows16 D2
    counters merge merge D1
    counters latent sm90 M1 sm90
    counters latent-mma rows64 M1 mma
    counters unfolded sm90 M3 sm90
}

head_once() { # what every table says of the device, only before the first
    if [ -s "$results/shapes.tsv" ]; then grep -vE '^(device|copy|id)[[:space:]]'; else cat; fi
}

counters() { # name, kernel, what is benched: of one launch
    job "counters-$1" 20 ncu --clock-control none --set full -k "regex:$2" --launch-skip 8 \
        --launch-count 1 --kill yes --page details "$pack/bench" "${@:3}" || true
}

stage_sanitizers() {
    if ! command -v compute-sanitizer >/dev/null; then
        echo "SKIP compute-sanitizer: it is not installed" | tee "$results/sanitizer.txt"
        return
    fi
    # Calls that the library makes on purpose and that fail are no finding.
    local tool tools=(memcheck synccheck racecheck initcheck) pids=()
    for tool in "${tools[@]}"; do
        job "$tool" "${RADIXKV_SANITIZER_SECONDS:-250}" compute-sanitizer \
            --tool "$tool" --report-api-errors no --error-exitcode 9 \
            "$pack/tests" --test-threads=1 cuda::hopper::k20 cuda::steps::k22 &
        pids+=($!)
    done
    # Into a file: behind a pipe they would not be this shell's to wait for.
    for tool in "${!tools[@]}"; do
        wait "${pids[$tool]}" && echo "PASS ${tools[$tool]}" || echo "FAIL ${tools[$tool]}"
    done >"$results/sanitizer.txt"
    cat "$results/sanitizer.txt"
    ! grep -q FAIL "$results/sanitizer.txt"
}

stage_record() {
    local failed=0
    export RKV_CUDA_MATRIX=1
    side_by_side <<'JOBS' || failed=1
matrix 240 cuda::matrix::
tests 240 --skip cuda::matrix::
JOBS
    unset RKV_CUDA_MATRIX
    job shapes 200 "$pack/bench" || failed=1
    cp "$results/shapes.log" "$results/shapes.tsv"
    keep
    return $failed
}

docs() {
    python3 scripts/gpu_docs.py "$@" docs/PERFORMANCE.md
}

case ${1:-all} in
pack) shift; pack "$@" ;;
run) shift; run "$@" ;;
peers) shift; peers "$@" ;;
docs) docs "${2:?the folder with the results}" "${@:3}" ;;
all) pack && run && docs "$pack/results" ;;
*) sed -n '2,28p' "$0"; exit 2 ;;
esac
