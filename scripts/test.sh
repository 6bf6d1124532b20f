#!/usr/bin/env bash
# What every change must pass: `make test`; with `long`, what `make test-long` does. Runs every
# stage even when one fails, then says how each went, what was skipped, and what the runners
# counted. With the names of stages: only those, one after another.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/go/bin" RUST_BACKTRACE=1
unset CARGO_BUILD_TARGET # what is built here runs here
source scripts/nvcc.sh

# Two at a time, in this order: none keeps two processors busy by itself. The first compiles for
# long, and what needs the same folder comes late.
all=(tests faults python net models engine memcheck fuzz lint abi docs kernels)
long=(sanitizers matrix ptx_matrix kernel_faults engine_clang go_pointers aarch64 llama_cpp
    llama_server transformers vllm router engines python_speed long_model long_simulation long_tiers
    soak long_fuzz)
# What nvcc made is the same for every folder that is built in.
RADIXKV_KERNEL_CACHE=$(realpath -m "${CARGO_TARGET_DIR:-target}/kernels")
export RADIXKV_KERNEL_CACHE
target=${CARGO_TARGET_DIR:-target}
logs=$target/test-logs
# For a stage, the compiler included.
limit="timeout --verbose --kill-after=10 ${RKV_STAGE_SECONDS:-5000}"

have() { # command, what it shows
    command -v "$1" >/dev/null || { echo "SKIP $2: $1 is not installed"; return 1; }
}

see_to_nvcc() { # for the stages $*: all of them build with kernels, or all without, in one folder
    no_nvcc="RADIXKV_CUDA is 0"
    [ "${RADIXKV_CUDA:-}" != 0 ] && ! find_nvcc >/dev/null || return 0
    no_nvcc="there is no nvcc (make cuda-toolchain)"
    case " $* " in
    *" kernels "*)
        if bash scripts/cuda_toolchain.sh; then
            # Five targets take minutes, and one of them is what is there to be tested.
            export RADIXKV_CUDA_ARCHS="${RADIXKV_CUDA_ARCHS-90a}"
            return
        fi
        ;;
    esac
    if [ "${RADIXKV_CUDA:-}" = 1 ]; then
        echo "error: RADIXKV_CUDA is 1, but $no_nvcc" >&2
        exit 1
    fi
    export RADIXKV_CUDA=0
}

stage_lint() { # formatting, clippy, rustdoc
    if cargo fmt --version >/dev/null 2>&1; then
        cargo fmt --check
        cargo fmt --check --manifest-path fuzz/Cargo.toml
        cargo fmt --check --manifest-path examples/engine/text/Cargo.toml
        cargo fmt --check --manifest-path bindings/python/Cargo.toml
        cargo fmt --check --manifest-path net/Cargo.toml
        cargo fmt --check --manifest-path tests/router/Cargo.toml
    else
        echo "SKIP formatting: rustfmt is not installed"
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        cargo clippy --locked --all-targets -- -D warnings
        cargo clippy --locked --all-targets --all-features -- -D warnings
        cargo clippy --locked --manifest-path examples/engine/text/Cargo.toml \
            --target-dir "$target/engine_text" -- -D warnings
        cargo clippy --locked --all-targets --manifest-path net/Cargo.toml \
            --target-dir "$target/net" -- -D warnings
        ! have python3 "clippy of the Python package" ||
            cargo clippy --locked --manifest-path bindings/python/Cargo.toml \
                --target-dir "$target/python/lint" -- -D warnings
    else
        echo "SKIP clippy: it is not installed"
    fi
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --all-features
}

test_targets_but() { # options of `cargo test` for all targets of tests but these
    local path name
    for path in tests/*.rs tests/*/main.rs; do
        name=$(basename "${path%/main.rs}" .rs)
        case " $* " in *" $name "*) ;; *) echo --test "$name" ;; esac
    done
}

stage_tests() { # everything else under cargo: Rust tests, and those that drive C, C++, Go, CMake
    # Go compiles all of its own library for strict checks of pointers, and kernels with faults are
    # tests of the tests: `make test-long` asks.
    local targets
    # Two are features of their own.
    mapfile -t targets < <(test_targets_but engine llama_cpp llama_server | tr ' ' '\n')
    $limit cargo test --locked --no-fail-fast --lib --bins --examples "${targets[@]}" -- \
        --skip strict_pointer_checks --skip every_fault
    $limit cargo test --locked --doc
}

stage_engine() { # the reference engine: its parts, requests over HTTP, its pages in a browser
    # Clang's opinion of it takes as long as these: `make test-long` asks.
    $limit cargo test --locked --no-fail-fast --test engine -- --skip clang_has_no_warnings
}

stage_net() { # the library that publishes events and reaches stores, over sockets
    $limit cargo test --locked --manifest-path net/Cargo.toml --target-dir "$target/net"
}

stage_faults() { # panics inside the library, through the header
    # A folder of its own: cargo keeps one libradixkv.so per profile, whatever its features. Here is
    # what has such a panic; `tests` has the rest.
    # Kernels are nothing to it, and `tests` is just making them.
    export CARGO_PROFILE_TEST_OPT_LEVEL=0 RADIXKV_CUDA=0
    $limit cargo test --locked --no-fail-fast --features fault-injection \
        --test c --test cpp --test go --target-dir "$target/fault-injection" -- --exact \
        m02_panics_inside_the_library m08_callbacks errors snapshot tests_pass
}

stage_models() { # what threads do without a lock, in every order of their steps
    $limit bash scripts/loom.sh
}

stage_memcheck() { # the C and C++ tests under valgrind
    have valgrind memcheck || return 0
    local kinds=definite,possible
    # Valgrind runs one thread at a time; without fairness one that polls can keep the others out.
    # A limit for each program: what hangs is named.
    export RKV_RUNNER="timeout --verbose --kill-after=10 400 \
        valgrind -q --fair-sched=try --leak-check=full --show-leak-kinds=$kinds \
        --errors-for-leak-kinds=$kinds --error-exitcode=99 \
        --suppressions=$PWD/scripts/valgrind.supp"
    export RUST_BACKTRACE=0 # printing one leaves megabytes reachable
    # The library that users get: optimised further than the tests' own, it is other machine code.
    # Whichever compiler made a program, it is the same.
    cargo build --locked --release
    export RKV_LIBRARY_DIR=$target/release
    $limit cargo test --locked --no-fail-fast --test c --test cpp -- \
        --skip clang --skip headers --skip every --skip m09
    # Not the one in Go, whose stacks valgrind does not understand.
    $limit cargo test --locked --test examples -- --exact c router beam_search recurrent cpp
}

stage_python() { # the Python wheel, in an empty virtual environment: pytest, mypy, stubtest
    $limit bash scripts/python.sh test
}

stage_abi() { # names, numbers, layouts and types against abi/; how the second library is found
    cargo test --locked --test abi
    bash scripts/abi.sh
    bash scripts/net_package.sh
}

stage_docs() { # every parameter of the header is described
    have doxygen docs || return 0
    mkdir -p "$target"
    doxygen - < <(cat Doxyfile; echo "OUTPUT_DIRECTORY = \"$target/doxygen\"")
    echo "$target/doxygen/html/index.html"
}

stage_fuzz() { # the fuzz targets on saved inputs and on what is made of them
    # What a fuzzer and AddressSanitizer add takes minutes to compile: `make test-long` has both.
    # Kernels are nothing to it.
    RADIXKV_CUDA=0 $limit cargo test --locked --no-fail-fast --no-default-features \
        --manifest-path fuzz/Cargo.toml --target-dir "$target/fuzz_inputs"
}

stage_kernels() { # what nvcc makes of the CUDA kernels: their PTX under emulation
    if [ "${RADIXKV_CUDA:-}" = 0 ]; then
        echo "SKIP kernels as nvcc makes them: $no_nvcc"
        return 0
    fi
    # `tests` has read their machine code.
    # Of the shortest heads and the longest; test-long has all. What is left out asks the driver
    # alone, or has kernels of the source with faults in them.
    RKV_CUDA_KERNELS=ptx:64,576 $limit cargo test --locked --test cuda -- \
        --skip cuda::driver:: --skip cuda::faults::
}

stage_sanitizers() { # Miri, sanitizers, helgrind, loom with a preemption more
    bash scripts/sanitizers.sh
}

stage_matrix() { # every combination of the kernels' parameters, under emulation
    RKV_CUDA_MATRIX=1 cargo test --locked --test cuda matrix
}

stage_ptx_matrix() { # the same, and all else, with what nvcc makes of all kernels
    RKV_CUDA_KERNELS=ptx RKV_CUDA_MATRIX=1 cargo test --locked --test cuda
}

stage_engine_clang() { # the reference engine as clang sees it
    cargo test --locked --test engine clang_has_no_warnings
}

stage_kernel_faults() { # the tests find each fault that is put into a kernel
    cargo test --locked --test cuda every_fault
}

stage_go_pointers() { # the Go binding under the strictest checks of what it passes
    cargo test --locked --test go strict_pointer_checks
}

stage_aarch64() { # the library as it is compiled for aarch64, under qemu
    bash scripts/aarch64.sh
}

stage_llama_cpp() { # llama.cpp with the snapshot cache
    cargo test --locked --features llama-cpp --test llama_cpp
}

stage_llama_server() { # llama-server with the snapshot cache, beside its own
    cargo test --locked --features llama-server --test llama_server
}

stage_transformers() { # the reference engine beside Hugging Face's transformers
    cargo test --locked --features transformers --test engine transformers
}

stage_vllm() { # prefixes of groups beside vLLM's own rules, and events by its structs
    bash scripts/vllm.sh 20000 "$(date +%s)"
}

stage_router() { # Dynamo's router, fed by our events alone
    cargo test --locked --manifest-path tests/router/Cargo.toml --target-dir "$target/router"
}

stage_engines() { # other engines with this cache in the place of their own
    bash scripts/engines.sh
}

stage_python_speed() { # what calls from Python cost, on a machine that does nothing else
    RADIXKV_SPEED=1 bash scripts/python.sh test tests/test_speed.py
}

stage_long_model() { # operations from a new seed
    RKV_MODEL_SEED=$(date +%s) RKV_MODEL_STEPS=2000000 cargo test --locked --test model
}

stage_long_simulation() {
    RKV_SIM_SEED=$(date +%s) RKV_SIM_OPS=100000000 \
        cargo test --locked --test simulation -- --nocapture simulated &&
        RKV_GROUPS_SEED=$(date +%s) RKV_GROUPS_STEPS=8000000 \
            cargo test --locked --test groups -- --nocapture simulation
}

stage_long_tiers() { # kills, crashes and faults by the hundred
    RKV_TIER_KILLS=500 RKV_TIER_RUNS=10 cargo test --locked \
        --test tier --test snapshot_tiers --test paged_tiers
}

stage_soak() { # the reference engine for five minutes
    RKV_SOAK_SECONDS=300 cargo test --locked --test engine -- --exact b11_soak
}

stage_long_fuzz() { # ten minutes for each fuzz target
    bash scripts/fuzz.sh 600
}

# `timeout` puts what it runs into a process group of its own, where the terminal's signal does not
# come, and others send theirs to this process alone. So what was started is looked for.
stop() { # a process, and all that it has started; it is held first, so that it starts no more
    local child children
    [ "$1" = $$ ] || kill -STOP "$1" 2>/dev/null || return 0
    children=$(cat /proc/"$1"/task/*/children 2>/dev/null)
    [ "$1" = $$ ] || { kill "$1"; kill -CONT "$1"; } 2>/dev/null
    for child in $children; do stop "$child"; done
}
trap 'stop $$; wait; exit 130' HUP INT TERM

mkdir -p "$logs"
exec 8>"$logs.lock"
flock -n 8 || {
    echo "error: another run has $logs; CARGO_TARGET_DIR names another place" >&2
    exit 1
}
rm -f "$logs"/*
[[ $* && $* != long ]] || bash scripts/tools.sh 8>&- || exit 1

at_a_time=1
case "$*" in
'') stages=("${all[@]}") at_a_time=2 ;;
long) stages=("${long[@]}") program_limit=7200 ;;
*) stages=("$@") ;;
esac
see_to_nvcc "${stages[@]}"
# What hangs has failed: each program of tests by itself, however long the compiler takes.
program_limit="timeout --verbose --kill-after=10 ${program_limit:-1500}"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$program_limit
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$program_limit

in_its_shell() { # stage
    # What outlives a stage does not keep the lock.
    (set -e; export RKV_STAGE="$$ $1"; "stage_$1") </dev/null 2>&1 8>&-
}

# A stage's limit reaches cargo. The programs that it runs have a limit each, and with that a
# process group, where a signal to cargo's does not come: what has the stage's name is left of it.
stop_rest() { # stage
    local path
    while read -r path; do
        path=${path%/environ}
        kill -KILL "${path#/proc/}" 2>/dev/null
    done < <(grep -lsz "^RKV_STAGE=$$ $1\$" /proc/[0-9]*/environ)
}

run_stage() { # stage; what it printed, its status, its seconds and its processors' go into $logs
    local start=$SECONDS code TIMEFORMAT='%0U %0S'
    { time in_its_shell "$1"; } 2>"$logs/$1.cpu"
    code=$?
    case $code in 124 | 137) stop_rest "$1" ;; esac
    echo "$code $((SECONDS - start)) $(<"$logs/$1.cpu")" >"$logs/$1.status"
}

next_stage() { # prints the number of one that nobody has taken
    local at
    {
        flock 9
        read -r at <"$logs/next"
        echo $((at + 1)) >"$logs/next"
    } 9>"$logs/lock"
    echo "$at"
}

run_in_turn() { # takes stages until there is none; each is printed whole when it has ended
    local stage
    while stage=${stages[$(next_stage)]:-} && [ -n "$stage" ]; do
        run_stage "$stage" >"$logs/$stage.log"
        { flock 9; printf '\n=== %s\n' "$stage"; cat "$logs/$stage.log"; } 9>"$logs/lock"
    done
}

if [ $at_a_time -gt 1 ]; then
    echo 0 >"$logs/next"
    for ((i = 0; i < at_a_time; i++)); do run_in_turn & done
    wait
else
    for stage in "${stages[@]}"; do
        printf '\n=== %s\n' "$stage"
        run_stage "$stage" | tee "$logs/$stage.log" & # a trap waits for what is in front
        wait $!
    done
fi

ran_nothing() { # stage: cargo has results, and in none of them a test
    grep -q '^test result: ' "$logs/$1.log" &&
        ! grep -qE '^test result: .* [1-9][0-9]* passed;' "$logs/$1.log"
}

report=() failed=()
for stage in "${stages[@]}"; do
    read -r code seconds user system <"$logs/$stage.status" || code=none seconds=0 user=0 system=0
    said=ok
    [ "$code" = 0 ] || said="FAILED ($code)"
    [ "$said" != ok ] || ! ran_nothing "$stage" || said="FAILED (no test has that name)"
    [ "$said" = ok ] || failed+=("$stage")
    report+=("$(printf '%-15s %5d s, %5d s of processors  %s' \
        "$stage" "$seconds" $((user + system)) "$said")")
done

printf '\n=== %d s in all\n' $SECONDS
printf '%s\n' "${report[@]}"
grep -ohs 'SKIP.*: .*' "$logs"/* | sort -u | grep . || echo "nothing was skipped"
# What the runners counted, in their own words.
for stage in "${stages[@]}"; do
    grep -hE '^(test result: |PASS |FAIL )' "$logs/$stage.log" | grep -v ' 0 passed; 0 failed'
done
# Who reads only the end sees what failed.
errors='^(test .* FAILED|thread .* panicked at|timeout: |error(\[|:) |Diff in )|: error: '
for stage in "${failed[@]}"; do
    grep -hE "$errors" "$logs/$stage.log" | sed "s/^/FAIL $stage: /" ||
        echo "FAIL $stage: see above"
done
exit $((${#failed[@]} > 0))
