#!/usr/bin/env bash
# What every change must pass: `make test`. Runs every stage even when one fails, then says how each
# went, what was skipped, and what the runners counted. With arguments: only those stages.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/go/bin" RUST_BACKTRACE=1

all=(lint tests faults memcheck abi docs go fuzz)
limit='timeout --kill-after=10 1200' # a stage that hangs is a failed stage
logs=${CARGO_TARGET_DIR:-target}/test-logs

have() { # command, what it shows
    command -v "$1" >/dev/null || { echo "SKIP $2: $1 is not installed"; return 1; }
}

lint() { # formatting, clippy, rustdoc
    if cargo fmt --version >/dev/null 2>&1; then
        cargo fmt --check
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

tests() { # unit, model, header, source, layout, C, C++ and installation tests
    $limit cargo test --locked
}

faults() { # panics inside the library, through the header
    # A folder of its own: cargo keeps one libradixkv.so per profile, whatever its features.
    $limit cargo test --locked --features fault-injection --test c \
        --target-dir "${CARGO_TARGET_DIR:-target}/fault-injection"
}

memcheck() { # the C and C++ tests under valgrind
    have valgrind memcheck || return 0
    local kinds=definite,possible
    # A printed backtrace leaves megabytes reachable.
    RUST_BACKTRACE=0 RKV_RUNNER="valgrind -q --leak-check=full --show-leak-kinds=$kinds \
        --errors-for-leak-kinds=$kinds --error-exitcode=99" \
        $limit cargo test --locked --test c
}

abi() { # names, numbers, layouts and types against abi/
    cargo test --locked --test abi
    bash scripts/abi.sh
}

docs() { # every parameter of the header is described
    have doxygen docs || return 0
    mkdir -p target
    doxygen Doxyfile
    echo "target/doxygen/html/index.html"
}

go() { # the Go binding
    have go "Go binding" || return 0
    $limit bash scripts/go.sh
}

fuzz() { # a minute for each fuzz target
    if [ -f scripts/fuzz.sh ]; then $limit bash scripts/fuzz.sh 60; fi
}

mkdir -p "$logs"
rm -f "$logs"/*
[ $# -gt 0 ] || bash scripts/tools.sh || exit 1

report=() failed=0 began=$SECONDS
[ $# -gt 0 ] && stages=("$@") || stages=("${all[@]}")
for stage in "${stages[@]}"; do
    printf '\n=== %s\n' "$stage"
    start=$SECONDS
    (set -e && "$stage") </dev/null 2>&1 | tee "$logs/$stage.log"
    code=${PIPESTATUS[0]} said=ok
    [ "$code" = 0 ] || { said="FAILED ($code)" failed=1; }
    report+=("$(printf '%-10s %5d s  %s' "$stage" $((SECONDS - start)) "$said")")
done

printf '\n=== summary, %d s\n' $((SECONDS - began))
for stage in "${stages[@]}"; do
    sed -n "s/^ *Running .*(\(.*\))/  \1/p;/^test result: /p;/^ok  */p;/^FAIL/p" "$logs/$stage.log" |
        sed "s/^/$stage: /"
done
printf '%s\n' "${report[@]}"
if grep -hs '^SKIP' "$logs"/*; then :; else echo "nothing was skipped"; fi
exit $failed
