#!/usr/bin/env bash
# The Python package, bindings/python: builds the wheel, installs it into an empty virtual
# environment and tries it there.
#
#   scripts/python.sh [test | wheel | wheels | bench | example] [argument...]
#
# test      (default) pytest, mypy --strict, of the adapters in integrations/ too, and stubtest;
#           arguments go to pytest
# wheel     the wheel alone, in target/python
# wheels    that, and the one of free-threaded CPython, which need not be there; FREE_THREADED names
#           its version, 3.14 by default
# bench     bindings/python/benches/hot_path.py beside the same calls from C; with --sglang lookups
#           beside those of SGLang's Rust core, in the environment of integrations/sglang/run.sh
# example   examples/python/prefix_cache.py
#
# PYTHON names the interpreter, python3 by default: 3.11 or later. With a free-threaded one, e.g.
# python3.14t, the wheel is one for it alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

what=${1:-test}
shift || true
case "$what" in
test | wheel | wheels | bench | example) ;;
*) sed -n '5,14s/^# *//p' "$0" >&2; exit 2 ;;
esac

python=${PYTHON:-python3}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cannot() { # why; tests are skipped then, but who asked for a wheel has none
    [ "$what" != test ] || { echo "SKIP the Python package: $1"; exit 0; }
    echo "error: the Python package: $1" >&2
    exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    cannot "no Python 3.11 or later ($python)"
"$python" -c 'import venv, ensurepip' 2>/dev/null || cannot "$python has no venv"
tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag + sys.abiflags)')
folder=$target/python/$tag

environment() { # folder, requirements file; nothing to do when it has just those
    [ -x "$1/bin/python" ] && cmp -s "$2" "$1/requirements" && return
    rm -rf "$1"
    "$python" -m venv "$1" &&
        "$1/bin/pip" install -q --disable-pip-version-check -r "$2" &&
        cp "$2" "$1/requirements"
}

requirements=bindings/python/requirements
environment "$folder/build" $requirements/build.txt || cannot "pip finds no packages"

# The library is built in the folder where everybody has it, the extension beside it.
rm -rf "$folder/wheels"
PATH="$folder/build/bin:$PATH" PYO3_PYTHON="$folder/build/bin/python" \
    RADIXKV_TARGET_DIR="$target" CARGO_TARGET_DIR="$target/python/extension" \
    "$folder/build/bin/pip" wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
    -w "$folder/wheels" bindings/python
wheel=$(echo "$folder"/wheels/*.whl)
echo "$wheel"
[ "$what" != wheel ] || exit 0
if [ "$what" = wheels ]; then
    # The stable ABI of CPython 3.11 has no variant without the lock. maturin knows what such an
    # interpreter says of itself; library and headers lie in the package from the wheel before.
    CARGO_TARGET_DIR="$target/python/extension" "$folder/build/bin/maturin" build -q --release \
        --manifest-path bindings/python/Cargo.toml --compatibility off -o "$folder/wheels" \
        -i "python${FREE_THREADED:-3.14}t" --target "$(rustc -vV | sed -n 's/^host: //p')"
    echo "$folder"/wheels/*t-*.whl
    exit 0
fi

unset CARGO_BUILD_TARGET # what is built from here on runs here
if [ "$what" = bench ] && [ "${1:-}" = --sglang ]; then
    run=$target/engines/sglang/venv/bin/python
    [ -x "$run" ] || { echo "first: bash integrations/sglang/run.sh --quick" >&2; exit 1; }
    export SGLANG_USE_CPU_ENGINE=1 PYTHONPATH=$PWD/integrations/sglang/tests/stand_in
else
    # An empty environment: what the wheel needs comes with it, the tools of the tests beside it.
    environment "$folder/$what" "$requirements/$what.txt"
    run=$folder/$what/bin/python
fi
"$run" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps "$wheel"

case "$what" in
test)
    # The second library is not in the wheel: the one that the stage `net` builds, too.
    cargo build -q --locked --manifest-path net/Cargo.toml --target-dir "$target/net"
    export RADIXKV_NET_LIBRARY=$target/net/debug/libradixkv_net.so
    # Runners on CUDA compute on an emulated device, whose driver a C++ compiler makes.
    if command -v g++ >/dev/null; then
        cargo test -q --locked --test emulated_cuda >/dev/null
        export RADIXKV_EMULATED_CUDA=$target/tmp/emulated-cuda
    fi
    cd bindings/python
    export PYTHONDONTWRITEBYTECODE=1
    "$run" -m pytest -p no:cacheprovider "$@"
    cache=$folder/mypy
    MYPYPATH=benches:../../examples/python "$run" -m mypy --strict --cache-dir "$cache" \
        tests benches
    # The adapters of other engines, which need not be there.
    for name in sglang vllm; do
        (cd "../../integrations/$name" &&
            "$run" -m mypy --cache-dir "$cache" "radixkv_$name" tests)
    done
    # From elsewhere, so that the installed package is looked at.
    cd "$folder"
    "$run" -m mypy --strict --cache-dir "$cache" -p radixkv
    "$run" -m mypy.stubtest radixkv --ignore-disjoint-bases
    ;;
bench)
    if [ "${1:-}" = --sglang ]; then
        "$run" bindings/python/benches/sglang_core.py
    else
        "$run" bindings/python/benches/hot_path.py "$@"
    fi
    ;;
example) "$run" examples/python/prefix_cache.py "$@" ;;
esac
