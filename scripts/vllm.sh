#!/usr/bin/env bash
# vLLM's own structs decode our KV events: tests/vllm/events.py. And how far vLLM's rules reuse a
# prompt in groups of layers, and how far this library does, request by request:
# tests/vllm/groups.py. Arguments go to that: the number of requests, and a seed. Installs vLLM
# first (scripts/vllm_environment.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$(bash scripts/vllm_environment.sh | tail -n 1)
export VLLM_LOGGING_LEVEL=ERROR
"$venv/bin/python" tests/vllm/events.py
exec "$venv/bin/python" tests/vllm/groups.py "$@"
