#!/usr/bin/env bash
# vLLM with radixkv in the place of its KV cache manager, beside vLLM with its own: the same tokens,
# the hits, vLLM's own tests, the time in the cache's calls. Tables go to the standard output.
#
#   integrations/vllm/run.sh [--quick]
set -euo pipefail
cd "$(dirname "$0")/../.."

requests=300 repeats=5 timed=600
upstream=(prefix_caching scheduler async_scheduler priority_preemption_bug worker_slot_overflow
    priority_scheduler_random)
if [ "${1:-}" = --quick ]; then
    requests=60 repeats=2 timed=150
    unset 'upstream[-1]' # a quarter of an hour of random streams
fi

venv=$(bash scripts/vllm_environment.sh | tail -n 1)
python=$venv/bin/python
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/vllm
tests=$PWD/integrations/vllm/tests
version=$(sed -n 's/^vllm-cpu==//p' tests/vllm/requirements.txt)
export PYTHONPATH=$PWD/integrations/vllm:$tests PYTHONDONTWRITEBYTECODE=1
export VLLM_LOGGING_LEVEL=ERROR HF_HUB_OFFLINE=1
# A tiny model: binding threads to cores and room for a large cache only take time.
export VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1 OMP_NUM_THREADS=2

# Its tests are in the source distribution alone. To tell what that needs, pip would build it, which
# fails without CUDA; by then it is unpacked.
if [ "$(cat "$target/upstream/version" 2>/dev/null)" != "$version" ]; then
    rm -rf "$target/sdist" "$target/upstream"
    mkdir -p "$target/sdist" "$target/upstream"
    TMPDIR=$target/sdist "$python" -m pip download -q --disable-pip-version-check --no-deps \
        --no-binary vllm --no-build-isolation --no-clean -d "$target/sdist" "vllm==$version" \
        >"$target/sdist.log" 2>&1 || true
    found=$(find "$target/sdist" -path '*/tests/v1/core/test_prefix_caching.py' | head -n 1)
    [ -n "$found" ] || { tail "$target/sdist.log" >&2; exit 1; }
    mv "${found%/v1/core/*}" "$target/upstream/tests"
    rm -rf "$target/sdist"
    echo "$version" >"$target/upstream/version"
fi

printf '## vLLM %s: nothing of it is changed\n\n' "$version"
"$python" "$tests/untouched.py"
"$python" -m pytest -p no:cacheprovider -q -W ignore "$tests/test_start.py" \
    "$tests/test_hybrid.py" >"$target/start.log" 2>&1 ||
    { tail -n 40 "$target/start.log" >&2; exit 1; }

printf '\n## The whole engine, greedy tokens\n\n'
"$python" "$tests/engine.py" "$target/model" --requests "$requests"

printf '\n## The same with sliding windows\n\n'
"$python" "$tests/engine.py" "$target/gemma3" --kind gemma3 --requests "$((requests / 2))"

printf '\n## The same with recurrent layers: hits\n\n'
"$python" "$tests/engine.py" "$target/lfm2" --kind lfm2 --requests 60

printf '\n## Time, and hits of a larger stream\n\n'
OMP_NUM_THREADS=1 "$python" "$tests/speed.py" "$target/model" \
    --requests "$timed" --repeats "$repeats" 2>"$target/speed.log" ||
    { tail "$target/speed.log" >&2; exit 1; }

printf '\n## The same with sliding windows\n\n'
OMP_NUM_THREADS=1 "$python" "$tests/speed.py" "$target/model" --windows 1024 1024 \
    --requests "$timed" --repeats "$repeats" 2>"$target/speed.log" ||
    { tail "$target/speed.log" >&2; exit 1; }

printf '\n## KV cache events\n\n'
OMP_NUM_THREADS=1 "$python" "$tests/events.py" "$target/model" 2>"$target/events.log" ||
    { tail "$target/events.log" >&2; exit 1; }

printf "\n## vLLM's own tests\n\n"
# The models that they name, of which they need the configuration alone.
for model in facebook/opt-125m facebook/opt-350m Qwen/Qwen2.5-VL-3B-Instruct; do
    mkdir -p "$target/upstream/$model"
    cp "$tests/opt.json" "$target/upstream/$model/config.json"
done
files=("${upstream[@]/#/tests/v1/core/test_}")
files=("${files[@]/%/.py}")
cd "$target/upstream"
UPSTREAM_REPORT=$target/upstream.md "$python" -m pytest --noconftest -p no:cacheprovider \
    -p upstream -q --tb=short -W ignore "${files[@]}" >"$target/upstream.log" 2>&1 ||
    { tail -n 60 "$target/upstream.log" >&2; exit 1; }
cat "$target/upstream.md"
