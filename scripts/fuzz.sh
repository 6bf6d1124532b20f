#!/usr/bin/env bash
# Fuzzes the C ABI: scripts/fuzz.sh [seconds per target, default 60] [target...]
#
# Builds the targets of fuzz/ as cargo-fuzz does, but needs no cargo-fuzz: the coverage flags are
# stable, and AddressSanitizer is added where a nightly toolchain is there. Ends with one line for
# each target, and status 1 when one found something.
set -uo pipefail
cd "$(dirname "$0")/.."

all=(operations arguments groups tokens)
seconds=${1:-60}
shift || true
# To libFuzzer no time, or 0, is for ever.
if ! [[ $seconds =~ ^[1-9][0-9]*$ && " ${all[*]} " == *" ${1:-tokens} "* ]]; then
    echo "usage: $0 [seconds for each target, default 60] [target...]; of ${all[*]}" >&2
    exit 2
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")

triple=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"

if ! command -v c++ >/dev/null && ! command -v clang++ >/dev/null; then
    echo "SKIP fuzz: no C++ compiler, which libFuzzer needs"
    exit 0
fi
if ! rustc +nightly -V >/dev/null 2>&1 && command -v rustup >/dev/null; then
    echo "installing the nightly toolchain for AddressSanitizer"
    rustup toolchain install nightly --profile minimal >/dev/null 2>&1
fi
cargo=(cargo)
if rustc +nightly -V >/dev/null 2>&1; then
    cargo=(cargo +nightly)
    flags+=" -Zsanitizer=address"
else
    echo "no nightly toolchain: fuzzing without AddressSanitizer"
fi

log=$build/build.log
mkdir -p "$build"
if ! RUSTFLAGS="$flags" CARGO_TARGET_DIR="$build" "${cargo[@]}" build --release --bins \
    --manifest-path fuzz/Cargo.toml --target "$triple" >"$log" 2>&1; then
    tail -30 "$log"
    if grep -qE 'failed to (download|fetch|get)|Could not resolve' "$log"; then
        echo "SKIP fuzz: the dependencies cannot be downloaded here"
        exit 0
    fi
    echo "FAIL fuzz: the targets do not build"
    exit 1
fi

failed=0
lines=()
for target in "${targets[@]}"; do
    seeds=(fuzz/corpus/"$target")
    [ -d fuzz/regressions/"$target" ] && seeds+=(fuzz/regressions/"$target")
    # New inputs go to the build folder: the committed corpus stays as it is.
    found=$build/corpus/$target
    artifacts=$build/artifacts/$target/
    mkdir -p "${seeds[@]}" "$found" "$artifacts"
    log=$build/$target.log
    ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} \
        "$build/$triple/release/$target" "$found" "${seeds[@]}" \
        -max_total_time="$seconds" -max_len=1024 -timeout=60 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$artifacts" >"$log" 2>&1
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    coverage=$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1)
    if [ $status -eq 0 ]; then
        lines+=("PASS fuzz $target: ${runs:-0} runs in $seconds s, ${rate:-0}/s, $coverage")
    else
        failed=1
        grep -vE '^#[0-9]+\s+(NEW|REDUCE|RELOAD|pulse)' "$log" | tail -40
        grep -A2 'panicked at' "$log" | head -6
        lines+=("FAIL fuzz $target: $(grep -oE 'Test unit written to .*' "$log" | tail -1)")
    fi
done
printf '%s\n' "${lines[@]}"
exit $failed
