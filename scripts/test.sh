#!/usr/bin/env bash
# What every change must pass: `make test`. Runs every stage even when one fails, then says how each
# went, what was skipped, and what the runners counted. With arguments: only those stages.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/go/bin" RUST_BACKTRACE=1

all=(lint tests faults models memcheck abi docs fuzz kernels)
# What nvcc made is the same for every folder that is built in.
RADIXKV_KERNEL_CACHE=$(realpath -m "${CARGO_TARGET_DIR:-target}/kernels")
export RADIXKV_KERNEL_CACHE
target=${CARGO_TARGET_DIR:-target}
logs=$target/test-logs
# What hangs has failed: each program of tests by itself, however long the compiler takes, ...
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='timeout --verbose --kill-after=10 900'
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
limit='timeout --verbose --kill-after=10 2400' # ... and each stage

have() { # command, what it shows
    command -v "$1" >/dev/null || { echo "SKIP $2: $1 is not installed"; return 1; }
}

stage_lint() { # formatting, clippy, rustdoc
    if cargo fmt --version >/dev/null 2>&1; then
        cargo fmt --check
        cargo fmt --check --manifest-path fuzz/Cargo.toml
    else
        echo "SKIP formatting: rustfmt is not installed"
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        cargo clippy --locked --all-targets -- -D warnings
        cargo clippy --locked --all-targets --all-features -- -D warnings
    else
        echo "SKIP clippy: it is not installed"
    fi
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --all-features
}

stage_tests() { # everything under cargo: the Rust tests, and those that drive C, C++, Go, CMake
    $limit cargo test --locked --no-fail-fast
}

stage_faults() { # panics inside the library, through the header
    # A folder of its own: cargo keeps one libradixkv.so per profile, whatever its features.
    $limit cargo test --locked --no-fail-fast --features fault-injection \
        --test c --test cpp --test go \
        --target-dir "$target/fault-injection"
}

stage_models() { # what threads do without a lock, in every order of their steps
    $limit bash scripts/loom.sh
}

stage_memcheck() { # the C and C++ tests under valgrind
    have valgrind memcheck || return 0
    local kinds=definite,possible
    export RKV_RUNNER="valgrind -q --leak-check=full --show-leak-kinds=$kinds \
        --errors-for-leak-kinds=$kinds --error-exitcode=99 \
        --suppressions=$PWD/scripts/valgrind.supp"
    export RUST_BACKTRACE=0 # printing one leaves megabytes reachable
    $limit cargo test --locked --no-fail-fast --test c --test cpp
    # The library that users get: optimised further than the tests' own, it is other machine code.
    cargo build --locked --release
    RKV_LIBRARY_DIR=$target/release $limit cargo test --locked --test c -- \
        --exact programs_built_by_gcc_pass
    # Not the one in Go, whose stacks valgrind does not understand.
    $limit cargo test --locked --test examples -- --exact c router beam_search recurrent cpp
}

stage_abi() { # names, numbers, layouts and types against abi/
    cargo test --locked --test abi
    bash scripts/abi.sh
}

stage_docs() { # every parameter of the header is described
    have doxygen docs || return 0
    mkdir -p target
    doxygen Doxyfile
    echo "target/doxygen/html/index.html"
}

stage_fuzz() { # most of a minute for each fuzz target
    [ -f scripts/fuzz.sh ] || { echo "SKIP fuzz: there is no scripts/fuzz.sh"; return 0; }
    $limit bash scripts/fuzz.sh 45
}

stage_kernels() { # what nvcc makes of the CUDA kernels: machine code, and their PTX under emulation
    if [ "${RADIXKV_CUDA:-}" = 0 ]; then
        echo "SKIP kernels as nvcc makes them: RADIXKV_CUDA is 0"
        return 0
    fi
    if ! [ -x "${CUDA_HOME:-$target/cuda/home}/bin/nvcc" ] && ! command -v nvcc >/dev/null; then
        bash scripts/cuda_toolchain.sh || {
            echo "SKIP kernels as nvcc makes them: there is no nvcc (make cuda-toolchain)"
            return 0
        }
        # With nvcc `tests` has read all machine code; one target takes a minute.
        export RADIXKV_CUDA_ARCHS=90a
        RADIXKV_CUDA=1 $limit cargo test --locked --test kernels
    fi
    RADIXKV_CUDA=1 RKV_CUDA_KERNELS=ptx $limit cargo test --locked --test cuda
}

mkdir -p "$logs"
rm -f "$logs"/*
[ $# -gt 0 ] || bash scripts/tools.sh || exit 1

report=() failed=()
[ $# -gt 0 ] && stages=("$@") || stages=("${all[@]}")
for stage in "${stages[@]}"; do
    printf '\n=== %s\n' "$stage"
    start=$SECONDS
    (set -e; "stage_$stage") </dev/null 2>&1 | tee "$logs/$stage.log"
    code=${PIPESTATUS[0]} said=ok
    [ "$code" = 0 ] || { said="FAILED ($code)"; failed+=("$stage"); }
    report+=("$(printf '%-9s %5d s  %s' "$stage" $((SECONDS - start)) "$said")")
done

printf '\n=== %d s in all\n' $SECONDS
printf '%s\n' "${report[@]}"
# Who reads only the end sees what failed.
for stage in "${failed[@]}"; do
    grep -hE '^(test .* FAILED|thread .* panicked at|timeout: |error(\[|:) )' "$logs/$stage.log" |
        sed "s/^/$stage: /"
done
grep -ohs 'SKIP.*: .*' "$logs"/* | sort -u | grep . || echo "nothing was skipped"
# What the runners counted, in their own words.
for stage in "${stages[@]}"; do
    grep -hE '^(test result: |PASS |FAIL )' "$logs/$stage.log" | grep -v ' 0 passed; 0 failed'
done
exit $((${#failed[@]} > 0))
