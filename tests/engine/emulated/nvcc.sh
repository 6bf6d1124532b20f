#!/usr/bin/env bash
# Stands where nvcc stands in the engine's build, and compiles its kernels for the emulated device:
# the image that it makes is the name of a shared library. RKV_EMULATED_DRIVER is the folder of the
# emulated libcuda.so.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../../..")
while [ $# -gt 0 ]; do
    case $1 in
    -o) image=$2; shift ;;
    -I) include=$2; shift ;;
    esac
    shift
done
g++ -std=c++17 -O2 -fPIC -shared -Wall -Wextra -Werror -I "$root" -I "$include" \
    "$here/kernels.cpp" -L "$RKV_EMULATED_DRIVER" -lcuda -o "$image.so"
printf 'so:%s\0' "$image.so" >"$image"
