#!/usr/bin/env bash
# Lets machines look for undefined behaviour and races: scripts/sanitizers.sh [part...]
#
#   miri      the ABI through the Rust library, strict provenance
#   address   AddressSanitizer in the library: Rust tests, and the C and C++ tests on top
#   thread    ThreadSanitizer in the library and in std: the tests with threads, and of tiers
#   helgrind  tests/c/*threads.c on a lock that helgrind understands, and without its read locks
#   loom      tests/loom with one preemption more than in `make test`: some minutes
#
# Each part says PASS, FAIL or SKIP with the reason; status 1 when one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
unset CARGO_BUILD_TARGET # what is built here runs here

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(miri address thread helgrind loom)
triple=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-$PWD/target}/sanitizers
mkdir -p "$build"
export RUST_BACKTRACE=0
lines=()

has() { command -v "$1" >/dev/null 2>&1; }

has_component() {
    rustup +nightly component list 2>/dev/null | grep -q "^$1.*(installed)" ||
        rustup component add --toolchain nightly "$1" >/dev/null 2>&1
}

has_nightly() {
    rustc +nightly -V >/dev/null 2>&1 && return
    has rustup && rustup toolchain install nightly --profile minimal >/dev/null 2>&1
}

# The feature that puts the library on a lock that race detectors and Miri understand.
has_pthread_lock() { grep -q '^pthread-lock' Cargo.toml; }

say() { lines+=("$*") && echo "$*"; }

# logged <name> <seconds> <command...>: into a log, which is shown when the command fails.
logged() {
    local log=$build/$1.log seconds=$2
    shift 2
    timeout "$seconds" "$@" >"$log" 2>&1 && return
    local status=$?
    echo "--- exit status $status: $*"
    tail -40 "$log"
    return 1
}

tests_passed() { grep -ohE '^test result: ok. [0-9]+' "$@" | awk '{n += $4} END {print n + 0}'; }

miri() {
    has_nightly || { say "SKIP miri: no nightly toolchain"; return; }
    has_component miri && has_component rust-src ||
        { say "SKIP miri: it cannot be installed"; return; }
    local ok=1 runner=_UNKNOWN_LINUX_GNU_RUNNER threads
    # What runs programs otherwise, with a limit of time, can't run what is for Miri alone.
    local test=(env -u "CARGO_TARGET_X86_64$runner" -u "CARGO_TARGET_AARCH64$runner"
        CARGO_TARGET_DIR="$build" cargo +nightly miri test --test)
    export MIRIFLAGS="-Zmiri-strict-provenance"
    logged miri 900 "${test[@]}" capi_miri -- --skip threads || ok=0
    # The stories of groups, but for those of tens of thousands of pages.
    logged miri-groups 1800 "${test[@]}" groups -- order:: refusals:: limit:: \
        --skip far_apart --skip long_gap --skip large_pages || ok=0
    # Miri gives exp() and ln() another last place each time, since nobody promises it; the library
    # promises the same bits of the same machine.
    MIRIFLAGS+=" -Zmiri-deterministic-floats" \
        logged miri-attention 1800 "${test[@]}" attention -- small || ok=0
    # Where threads wait, parking_lot does what Miri refuses: pointers of integers, raw futex calls.
    if has_pthread_lock; then
        MIRIFLAGS+=" -Zmiri-many-seeds=0..8"
        logged miri-threads 900 "${test[@]}" capi_miri --features pthread-lock -- threads || ok=0
        logged miri-groups-threads 900 "${test[@]}" groups_threads --features pthread-lock || ok=0
        # The library's readers without a lock do without it there too: one schedule, a long one.
        MIRIFLAGS=${MIRIFLAGS% *} \
            logged miri-probes 900 "${test[@]}" probes --features pthread-lock || ok=0
        threads="threads with 8 schedules, probes"
    else
        threads="threads left out, for parking_lot's sake"
    fi
    unset MIRIFLAGS
    if [ $ok -eq 1 ]; then
        local count
        count=$(tests_passed "$build"/miri{,-groups,-attention}.log)
        say "PASS miri: $count tests with strict provenance, $threads"
    else
        say "FAIL miri"
    fi
}

# Compiles and runs programs against the instrumented library; all of them, also after a failure.
programs() {
    local compiler=$1 std=$2 lib=$3 source program failed=0
    shift 3
    # The library is told apart from a plain one by what it needs.
    # (grep -q would end nm early, which pipefail takes for a failure.)
    nm -D "$lib/libradixkv.so" | grep __asan_report >/dev/null || return 1
    for source in "$@"; do
        program=$build/programs/$(basename "$source" | tr . -)
        logged program 120 "$compiler" "-std=$std" -g -O0 -fsanitize=address,undefined \
            -fno-sanitize-recover=undefined -DRKV_FAULT_INJECTION -Iinclude "$source" \
            -o "$program" "-L$lib" -lradixkv "-Wl,-rpath,$lib" -lpthread -lm &&
            logged program 300 "$program" || failed=1
    done
    return $failed
}

address() {
    has_nightly || { say "SKIP address: no nightly toolchain"; return; }
    has gcc && has g++ || { say "SKIP address: no gcc"; return; }
    local lib=$build/asan/$triple/debug ok=1
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1
    RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=$build/asan RKV_MODEL_STEPS=20000 \
        RKV_GROUPS_STEPS=12000 RKV_TIER_RUNS=0.3 RKV_TIER_KILLS=30 \
        logged asan-rust 2400 cargo +nightly test --locked --no-fail-fast --target "$triple" \
        --test capi_miri --test threads --test model --test snapshot --test snapshot_threads \
        --test attention --test groups --test groups_threads \
        --test tier --test snapshot_tiers --test paged_tiers || ok=0
    RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=$build/asan \
        logged asan-build 900 cargo +nightly build --locked --target "$triple" \
        --features fault-injection || ok=0
    mkdir -p "$build/programs"
    local c=() cpp=(tests/cpp/*.cpp) source
    for source in tests/c/*.c; do
        # It forks beside threads that allocate, and the AddressSanitizer of gcc 12 leaves its child
        # with a lock of its own that nobody holds: one run in three waits there. memcheck has it.
        [ "$source" = tests/c/child_process.c ] || c+=("$source")
    done
    programs gcc c11 "$lib" "${c[@]}" || ok=0
    programs g++ c++17 "$lib" "${cpp[@]}" || ok=0
    unset ASAN_OPTIONS
    if [ $ok -eq 1 ]; then
        say "PASS address: $(tests_passed "$build/asan-rust.log") Rust tests," \
            "${#c[@]} C and ${#cpp[@]} C++ programs, library and programs instrumented;" \
            "without child_process.c, whose forks leave this sanitizer locked"
    else
        say "FAIL address"
    fi
}

thread() {
    has_nightly || { say "SKIP thread: no nightly toolchain"; return; }
    has_component rust-src || { say "SKIP thread: rust-src cannot be installed"; return; }
    # Some tests ask for more memory than any machine has.
    export TSAN_OPTIONS=allocator_may_return_null=1
    # std is built too: without that its atomics would be invisible.
    if RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=$build/tsan RKV_TIER_RUNS=0.3 \
        logged tsan 1800 cargo +nightly test --locked --no-fail-fast -Zbuild-std \
        --target "$triple" --lib --test threads --test probes --test journal_threads \
        --test clear_threads --test snapshot_threads --test groups_threads --test capi_miri \
        --test tier --test snapshot_tiers --test paged_tiers; then
        say "PASS thread: $(tests_passed "$build/tsan.log") tests, std instrumented"
    else
        say "FAIL thread"
    fi
}

helgrind() {
    has valgrind && has gcc || { say "SKIP helgrind: no valgrind or gcc"; return; }
    if ! has_pthread_lock; then
        say "SKIP helgrind: this library has no lock that helgrind understands"
        return
    fi
    local lib=$build/helgrind/debug name program ok=1
    # Valgrind runs one thread at a time: without fairness one may end before the next begins, and
    # then there is nothing to see.
    local run=(valgrind --tool=helgrind --fair-sched=try --error-exitcode=99)
    mkdir -p "$build/programs"
    CARGO_TARGET_DIR=$build/helgrind \
        logged helgrind-build 900 cargo build --features pthread-lock || ok=0
    for name in snapshot_threads threads; do
        program=$build/programs/$name-helgrind
        logged helgrind-gcc 60 gcc -std=c11 -g -O1 -Iinclude "tests/c/$name.c" -o "$program" \
            "-L$lib" -lradixkv "-Wl,-rpath,$lib" -lpthread || ok=0
        [ $ok -eq 1 ] && { logged helgrind 900 "${run[@]}" "$program" || ok=0; }
    done
    logged helgrind-shim 60 gcc -std=c11 -shared -fPIC -O1 tests/helgrind/unlocked_reads.c \
        -o "$build/programs/unlocked_reads.so" -ldl || ok=0
    if [ $ok -eq 1 ]; then
        LD_PRELOAD=$build/programs/unlocked_reads.so timeout 900 "${run[@]}" "$program" \
            >"$build/helgrind-races.log" 2>&1
        local races
        races=$(grep -c 'Possible data race' "$build/helgrind-races.log")
        if [ "$races" -gt 0 ]; then
            say "PASS helgrind: no race, without suppressions; without read locks it finds $races"
            return
        fi
        echo "helgrind sees no race even where readers take no lock"
    fi
    say "FAIL helgrind"
}

loom() {
    if RKV_LOOM_MORE=1 logged loom 3600 bash scripts/loom.sh; then
        say "PASS loom: $(tests_passed "$build/loom.log") models, with a preemption more"
    else
        say "FAIL loom"
    fi
}

for part in "${parts[@]}"; do
    case $part in
    miri | address | thread | helgrind | loom) "$part" ;;
    *) echo "unknown part: $part" && exit 2 ;;
    esac
done
echo "---"
printf '%s\n' "${lines[@]}"
! printf '%s\n' "${lines[@]}" | grep -q '^FAIL'
