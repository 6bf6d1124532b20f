#!/usr/bin/env bash
# SGLang with radixkv in the place of its radix cache, beside SGLang with its own.
#
#   integrations/sglang/run.sh [--quick] [--sglang CHECKOUT]
#
# --quick              few requests: to see that it works, not to measure
# --sglang CHECKOUT    SGLang's source, whose tests of its caches are run against this one too; its
#                      wheel has none. A folder with one of their files, or both, will do. The
#                      variable SGLANG_CHECKOUT names it for `make test-long`
#
# Builds the wheel of radixkv, installs it with SGLang into target/engines/sglang (5 GB, minutes
# when it is new), runs the tests of the adapter, then the same requests in SGLang's default cache,
# in the same with its core in Python, and in radixkv, with pages of 1 and of 16 tokens: of a Llama,
# and of a Mellum, which has sliding windows; and of an LFM2, which has recurrent layers, with pages
# of 1, as SGLang has them on a CPU. Prints whether tokens and hits are equal and what a
# request costs in the cache's calls. Fails when an answer differs, when a request found less where
# nothing is evicted, and when all of them together found less in a tight pool.
set -euo pipefail
cd "$(dirname "$0")/../.."

quick=() sglang=${SGLANG_CHECKOUT:-}
while [ $# -gt 0 ]; do
    case "$1" in
    --quick) quick=(--quick) ;;
    --sglang) sglang=${2:?"--sglang: a path is needed"}; shift ;;
    *) sed -n '4,10s/^# *//p' "$0" >&2; exit 2 ;;
    esac
    shift
done

here=integrations/sglang
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/engines/sglang
run=$folder/venv/bin/python
mkdir -p "$folder"

wheel=$(bash scripts/python.sh wheel | tail -1)
[ -f "$wheel" ] || { echo "$wheel"; exit 1; }

requirements=$here/tests/requirements.txt
if ! cmp -s "$requirements" "$folder/venv/requirements"; then
    rm -rf "$folder/venv"
    "${PYTHON:-python3}" -m venv "$folder/venv"
    pip=("$run" -m pip install -q --disable-pip-version-check)
    "${pip[@]}" --no-deps sglang==0.5.23
    "${pip[@]}" -r "$requirements"
    cp "$requirements" "$folder/venv/requirements"
fi
"$run" -m pip uninstall -q -y --disable-pip-version-check radixkv radixkv-sglang 2>/dev/null
"$run" -m pip install -q --disable-pip-version-check --no-deps "$wheel" "$here"

export SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/$here/tests/stand_in
quietly() { # what SGLang says while it starts is shown when it fails
    "$@" > "$folder/said" 2>&1 || { tail -40 "$folder/said"; exit 1; }
}

(cd "$here" && "$run" -m pytest tests -W ignore)
if [ -n "$sglang" ]; then
    "$run" "$here/tests/theirs.py" "$sglang"
else
    echo "SKIP SGLang's own tests of its caches: SGLANG_CHECKOUT names no source of it"
fi

failed=0
for model in llama mellum lfm2; do
    page_sizes=(1 16)
    [ "$model" != lfm2 ] || page_sizes=(1)
    into=$folder/$model
    [ -d "$into/model" ] || quietly "$run" "$here/tests/models.py" "$model" "$into/model"
    for page_size in "${page_sizes[@]}"; do
        for name in default python radixkv default-room radixkv-room; do
            room=()
            [ "${name#*-}" != room ] || room=(--room)
            results=$into/$name-$page_size
            rm -f "$results.json" "$results.log"
            MEASURED_LOG=$results.log quietly "$run" "$here/tests/serve.py" "$into/model" \
                "$results.json" --backend "measured-${name%-room}" --page-size "$page_size" \
                "${quick[@]}" "${room[@]}"
        done
    done
    printf '\n# %s\n' "$model"
    for page_size in "${page_sizes[@]}"; do
        "$run" "$here/tests/compare.py" "$into" "$page_size" || failed=1
    done
done
exit $failed
