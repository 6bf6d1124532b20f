#!/usr/bin/env bash
# Benchmarks of the index, the page table and the snapshot cache, through the C ABI of the release
# library.
#
#   scripts/bench.sh                        all workloads, as a table
#   scripts/bench.sh w4 --page 16           one workload: w1 to w7, probe, rows, forks, machine
#   scripts/bench.sh w1 --journal 4194304   the same with a journal of so many bytes
#   scripts/bench.sh w1 --journal 4194304 --tiers
#                                           with host memory below the pages, and an engine's calls
#   scripts/bench.sh w6 --reserve 1024      the same with MiB of memory for indexes, reserved before
#   scripts/bench.sh --json                 the same numbers as JSON
#   scripts/bench.sh --docs                 measures all and rewrites the table of the documentation
#   scripts/bench.sh block-hash             W1 to W6 and probe with the block-hash index
#   scripts/bench.sh block-hash --docs      the same into the documentation
#   scripts/bench.sh digest                 page digests per second, beside block hashes in Python
#   scripts/bench.sh digest --docs          the same into the documentation
#   scripts/bench.sh snapshot               the snapshot cache, as a table
#   scripts/bench.sh snapshot --docs        the same into the documentation
#   scripts/bench.sh snapshot --entries 100000 --reserve 1024
#                                           one size beside 1000, with MiB reserved beforehand
#   scripts/bench.sh snapshot --count       its instructions per call
#   scripts/bench.sh snapshot --count --directory
#                                           the same over a directory that gets what leaves memory
#   scripts/bench.sh snapshot --trees       the same entries in an index of page size 1
#   scripts/bench.sh tier host              pages to host memory and back, beside memcpy
#   scripts/bench.sh tier open [RECORDS]    how long a directory of so many snapshots takes to open
#   scripts/bench.sh tier disk [STATES MIB] what of the disk's speed it reaches, beside fio
#                                           (TMPDIR says on which disk)
#   scripts/bench.sh longest                the longest call of each function in large worlds
#   scripts/bench.sh longest --docs         the same into the documentation
#   scripts/bench.sh longest nodes --all    every function in one world; names are in its main.c
#   scripts/bench.sh held nodes groups      where a thread has a lock for more than 50 us in those
#                                           worlds, of three runs the shortest: a library that times
#                                           its locks
#   scripts/bench.sh heap                   bytes of the heap beside the library's counters
#   scripts/bench.sh heap --docs            the same into the documentation
#   scripts/bench.sh attention              attention on the CPU beside PyTorch: bench_attention.sh
#   scripts/bench.sh attention --docs       the same into the documentation
#   scripts/bench.sh --count w4 --page 16   instructions per call, counted by callgrind
#   scripts/bench.sh --misses w6 --page 16 --leaves 100000
#                                           the same with the lines that simulated caches lack: of
#                                           48 KiB, and of 32 MiB
#   scripts/bench.sh --profile w4 "churn request" --page 16
#                                           the functions where those instructions go
#
# Times on a shared machine are noisy; instruction counts are not. Compare two versions of the
# library with --count, or with several alternating runs.
set -euo pipefail

cd "$(dirname "$0")/.."
if [[ " $* " == *" --help "* ]]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' scripts/bench.sh
    exit
fi
export PATH="$HOME/.cargo/bin:$PATH"
unset CARGO_BUILD_TARGET # what is built here runs here
bash scripts/tools.sh build >&2
target=${CARGO_TARGET_DIR:-target}
build=$target/bench
mkdir -p "$build"

cargo build --release
"${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -Werror -Iinclude benches/index/*.c \
    -o "$build/index-bench" -L"$target/release" -Wl,-rpath,'$ORIGIN/../release' \
    -lradixkv -lm -pthread
parts=(benches/index/{clock,fixture,meter,report}.c)
"${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -Werror -Iinclude benches/snapshot/*.c "${parts[@]}" \
    -o "$build/snapshot-bench" -L"$target/release" -Wl,-rpath,'$ORIGIN/../release' \
    -lradixkv -lm -pthread
for bench in longest heap tier; do
    "${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -Werror -Iinclude benches/$bench/*.c \
        "${parts[@]}" -o "$build/$bench-bench" -L"$target/release" \
        -Wl,-rpath,'$ORIGIN/../release' -lradixkv -lm -pthread
done

# The commit that last changed the library; a + says that the working tree has more.
commit=$(git log -1 --format=%h -- src 2>/dev/null || echo unknown)
git diff --quiet HEAD -- src 2>/dev/null || commit=$commit+
export RKV_BENCH_COMMIT=$commit

callgrind() { # program, its arguments
    local program=$1
    shift
    rm -f "$build"/callgrind.*
    # callgrind counts a `rep movsb` once per byte: keep the C library from using it.
    local tunables=glibc.cpu.x86_rep_movsb_threshold=1073741824
    tunables=$tunables:glibc.cpu.x86_rep_stosb_threshold=1073741824
    GLIBC_TUNABLES=$tunables \
        valgrind -q --tool=callgrind ${simulated:-} --collect-atstart=no --dump-instr=no \
        --callgrind-out-file="$build/callgrind.out" "$build/$program" --count "$@" >&2
}

# Sums what callgrind counted by operation.
per_call() {
    awk -F'[|]' '
        /^desc: Trigger: Client Request: / {
            sub(/^desc: Trigger: Client Request: /, ""); name = $1; calls = $2
        }
        /^(totals|summary): / && name != "" {
            has_misses = split($0, field, " ") > 2
            if (!(name in sum)) order[++count] = name
            sum[name] += field[2]; total[name] += calls
            # Of reading and of writing.
            first[name] += field[6] + field[7]; last[name] += field[9] + field[10]
            name = ""
        }
        END {
            for (i = 1; i <= count; i++) {
                name = order[i]; calls = total[name]
                printf "%-44s %10.0f", name, sum[name] / calls
                if (has_misses)
                    printf "  %7.1f misses in 48 KiB %7.1f in 32 MiB", \
                        first[name] / calls, last[name] / calls
                printf "  (%d calls)\n", calls
            }
        }' $(ls -v "$build"/callgrind.out.[0-9]*)
}

# Puts a table between the marks of that name in the documentation.
into_docs() { # mark, table
    local page=docs/PERFORMANCE.md
    grep -qxF "<!-- $1 -->" $page && grep -qxF "<!-- end of $1 -->" $page ||
        { echo "$page has no place for $1" >&2; exit 1; }
    MARK=$1 TABLE=$2 awk '
        $0 == "<!-- end of " ENVIRON["MARK"] " -->" { inside = 0 }
        !inside { print }
        $0 == "<!-- " ENVIRON["MARK"] " -->" {
            inside = 1
            print ""
            print ENVIRON["TABLE"]
            print ""
        }
        ' "$page" > "$build/page.md"
    mv "$build/page.md" "$page"
}

case ${1:-} in
--count | --misses)
    simulated=
    [ "$1" = --count ] || simulated="--cache-sim=yes --D1=49152,12,64 --LL=33554432,16,64"
    shift
    workload=$1
    shift
    for page in 16 1; do
        # Without --page, both; the argument given last wins.
        case " $* " in *" --page "*) [ "$page" = 16 ] || continue ;; *) ;; esac
        callgrind index-bench "$workload" --page "$page" --leaves 10000 "$@"
        echo "$workload${*:+ $*}, instructions per call (page size $page unless given):"
        per_call
    done
    ;;
--profile)
    workload=$2 operation=$3
    shift 3
    callgrind index-bench "$workload" --leaves 10000 --operation "$operation" "$@"
    for order in no yes; do
        echo "$workload, \"$operation\": instructions, inclusive: $order"
        callgrind_annotate --inclusive=$order --auto=no "$build/callgrind.out" |
            sed -n '/file:function/,$p' | head -32 | cut -c1-160
    done
    ;;
--docs)
    table=$("$build/index-bench" --brief)
    into_docs scripts/bench.sh "$table"
    ;;
block-hash)
    shift
    made() { "$build/index-bench" --index block-hash --page 16 --brief "$@"; }
    case ${1:-} in
    --docs) table=$(made); into_docs "scripts/bench.sh block-hash" "$table" ;;
    *) made "$@" ;;
    esac
    ;;
digest)
    shift
    made() {
        python3 benches/page_digest/compare.py --library "$target/release/libradixkv.so" "$@"
    }
    case ${1:-} in
    --docs) table=$(made); into_docs "scripts/bench.sh digest" "$table" ;;
    *) made "$@" ;;
    esac
    ;;
attention)
    shift
    case ${1:-} in
    --docs)
        table=$(bash scripts/bench_attention.sh)
        into_docs "scripts/bench.sh attention" "$table"
        ;;
    *) bash scripts/bench_attention.sh "$@" ;;
    esac
    ;;
tier)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    case ${2:-} in
    host) "$build/tier-bench" "$folder" host ;;
    open)
        "$build/tier-bench" "$folder/store" fill "${3:-1000000}"
        for _ in 1 2 3 4 5; do
            "$build/tier-bench" "$folder/store" open "${3:-1000000}"
        done
        ;;
    disk)
        states=${3:-16} mib=${4:-128}
        fio() { # name, file, how
            command fio --name=t --minimal --direct=1 --bs=2M --iodepth=8 --ioengine=io_uring \
                --filename="$2" --size=$((states * mib))M "${@:3}" |
                awk -F';' -v name="$1" '{ printf "fio, %s: %.0f MB/s\n", name,
                    (name == "read" ? $7 : $48) * 1.024 / 1000 }'
        }
        for _ in 1 2 3; do
            for how in threads ring; do
                rm -rf "$folder/store"
                "$build/tier-bench" "$folder/store" disk "$states" "$mib" "$how"
                fio read "$folder/store/data" --rw=read
            done
            fio write "$folder/fio" --rw=write --end_fsync=1 --fallocate=posix
            rm -f "$folder/fio"
        done
        ;;
    *) echo "scripts/bench.sh tier host | open | disk" >&2; exit 2 ;;
    esac
    ;;
held)
    shift
    timed=$target/held
    RADIXKV_CUDA=0 CARGO_TARGET_DIR=$timed cargo build --release --features timed-lock >&2
    python3 benches/longest/held.py "$build/longest-bench" "$timed/release" include/radixkv.h "$@"
    ;;
longest | heap)
    name=$1
    shift
    arguments=()
    # What takes a handle is measured, or the program says what is missing and fails.
    [ "$name" = heap ] || arguments=(--header include/radixkv.h)
    case ${1:-} in
    --docs)
        shift
        table=$("$build/$name-bench" "${arguments[@]}" "$@")
        into_docs "scripts/bench.sh $name" "$table"
        ;;
    *) "$build/$name-bench" "${arguments[@]}" "$@" ;;
    esac
    ;;
snapshot)
    shift
    case ${1:-} in
    --docs)
        table=$("$build/snapshot-bench")
        into_docs "scripts/bench.sh snapshot" "$table"
        ;;
    --count)
        arguments=("${@:2}")
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        [ "${2:-}" != --directory ] || arguments=(--storable --directory "$folder")
        callgrind snapshot-bench "${arguments[@]}" && per_call
        ;;
    *) "$build/snapshot-bench" "$@" ;;
    esac
    ;;
*)
    "$build/index-bench" "$@"
    ;;
esac
