#!/usr/bin/env bash
# Sets up nvcc in target/cuda, from PyPI: no root, no GPU, about 100 MB. build.rs looks there.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/cuda/venv
python3 -m venv "$venv"
"$venv/bin/pip" install --disable-pip-version-check \
    nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 \
    nvidia-cuda-cuobjdump==13.2.78 nvidia-cuda-nvdisasm==13.2.78
home=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13)
[ -x "$home/bin/nvcc" ] || { echo "error: no nvcc in $home" >&2; exit 1; }
ln -sfn "$(realpath "$home")" "$target/cuda/home"
touch kernels/build.rs # so that cargo looks for nvcc again; it can't watch for a file to appear
"$target/cuda/home/bin/nvcc" --version | tail -2
