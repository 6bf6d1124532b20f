#!/usr/bin/env bash
# llama-server with radixkv in the seat of its prompt cache: integrations/llama_server. Everything
# is made in target/llama_server.
# By the first argument:
#   run ...        builds and starts it with further options; without a model, with a small one that
#                  is fetched
#   build          builds it; prints where it is
#   patch FOLDER   patches another copy of the same version of llama.cpp, which is built with
#                  -DRADIXKV_LLAMA_SERVER=<folder of this tree>/integrations/llama_server
# Further options of CMake, for a GPU for example, come from CMAKE_ARGS.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
unset CARGO_BUILD_TARGET # what is built here runs here
source scripts/logged.sh

# llama.cpp's source, tools included, travels in a Python package that binds to it.
package=llama-cpp-python version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
seat=$PWD/integrations/llama_server

what="${1:-run}"
[ $# -eq 0 ] || shift
case "$what" in
run | build) ;;
patch) [ $# = 1 ] || { echo "usage: $0 patch FOLDER" >&2; exit 2; } ;;
*)
    echo "usage: $0 run [option...] | build | patch FOLDER" >&2
    exit 2
    ;;
esac

fail() {
    echo "error: $1" >&2
    exit 1
}

# To another version the patch might apply, and mean something else.
apply() { # folder of llama.cpp
    (cd "$1" && sha256sum --check --quiet "$seat/llama.cpp.sha256" >&2) ||
        fail "$1 is not the llama.cpp of $package $version, unchanged: the patch is for that alone"
    patch -d "$1" -p1 --fuzz=0 --forward --quiet <"$seat/llama.cpp.patch" ||
        fail "the patch does not apply to $1"
}

if [ "$what" = patch ]; then
    apply "$(cd "$OLDPWD" && realpath "$1")"
    exit 0
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/llama_server"
out=$(cd "$target/llama_server" && pwd)
source=$out/llama.cpp

bash scripts/tools.sh llama-server >&2

# Two calls at once would write the same files.
exec 9>"$out/lock"
flock 9

fetch() { # pip asks an archive of sources for its name before it keeps it
    local archive=$out/${package//-/_}-$version.tar.gz
    if ! sha256sum --check --status <<<"$sha256  $archive" 2>/dev/null; then
        echo "fetching llama.cpp ($package $version, 77 MB) ..." >&2
        python3 -m venv "$out/venv" >"$out/venv.log" 2>&1 ||
            fail "python3 cannot make a virtual environment, see $out/venv.log"
        {
            "$out/venv/bin/pip" install --disable-pip-version-check scikit-build-core==0.11.6 &&
                "$out/venv/bin/pip" download --disable-pip-version-check --retries 2 --no-deps \
                    --no-binary :all: --no-build-isolation --dest "$out" "$package==$version"
        } >"$out/fetch.log" 2>&1 || fail "$package $version cannot be fetched, see $out/fetch.log"
        rm -rf "$out/venv"
        sha256sum --check --quiet <<<"$sha256  $archive" >&2 ||
            fail "$archive has not the checksum $sha256"
    fi
    rm -rf "$out/fetched" "$source" "$out/applied.patch"
    tar -xzf "$archive" -C "$out" --strip-components=2 \
        "${package//-/_}-$version/vendor/llama.cpp"
    echo "$package $version" >"$out/fetched"
}

# Another version's has other files, and other sums.
[ "$(cat "$out/fetched" 2>/dev/null)" = "$package $version" ] || fetch
if ! cmp -s "$seat/llama.cpp.patch" "$out/applied.patch"; then
    if [ -f "$out/applied.patch" ]; then # so that only what it touches is compiled again
        patch -d "$source" -p1 --fuzz=0 --reverse --quiet <"$out/applied.patch" || fetch
        rm -f "$out/applied.patch"
    fi
    # What is patched in part is fetched again.
    rm "$out/fetched"
    apply "$source"
    cp "$seat/llama.cpp.patch" "$out/applied.patch"
    echo "$package $version" >"$out/fetched"
fi

cargo build --locked --release >&2
# shellcheck disable=SC2086 # several options
logged "$out/configure.log" cmake -S "$source" -B "$out/build" -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DRADIXKV_LLAMA_SERVER="$seat" \
    -DRADIXKV_LIBRARY="$(cd "$target/release" && pwd)/libradixkv.so" ${CMAKE_ARGS:-}
[ -x "$out/build/bin/llama-server" ] ||
    echo "building llama-server, a quarter of an hour on two cores ..." >&2
logged "$out/build.log" nice -n 5 cmake --build "$out/build" -j "$(nproc)" \
    --target llama-server make_gguf
flock -u 9
if [ "$what" = build ]; then
    echo "$out/build/bin/llama-server"
    exit 0
fi

# An option names a model, or a variable of llama.cpp's: one that is downloaded would be written to
# where --model says.
named=${LLAMA_ARG_MODEL:-}${LLAMA_ARG_MODEL_URL:-}${LLAMA_ARG_HF_REPO:-}${LLAMA_ARG_DOCKER_REPO:-}
named+=${LLAMA_ARG_MODELS_DIR:-}${LLAMA_ARG_MODELS_PRESET:-}
case " $* ${named:+--model }" in
*" -m "* | *" --model "* | *" -hf "* | *" -hfr "* | *" --hf-repo "*) ;;
*" -mu "* | *" --model-url "* | *" -dr "* | *" --docker-repo "*) ;;
*" --gpt-oss-"* | *" --fim-qwen-"* | *" --embd-gemma-"* | *" --vision-gemma-"*) ;;
*" --models-dir "* | *" --models-preset "* | *" --help "* | *" -h "* | *" --version "*) ;;
*)
    # Not among the arguments of `set`, which would go on without one.
    model=$(bash scripts/model.sh gguf)
    set -- --model "$model" "$@"
    ;;
esac
# A store that servers share, named by an option or a variable, is talked with by a second library.
case " $* ${LLAMA_ARG_CACHE_REMOTE:+--cache-remote }" in
*" --cache-remote "*)
    cargo build --locked --release --manifest-path net/Cargo.toml --target-dir "$target/net" >&2
    RADIXKV_NET_LIBRARY=$(realpath "$target/net/release/libradixkv_net.so")
    export RADIXKV_NET_LIBRARY
    ;;
esac
exec "$out/build/bin/llama-server" "$@"
