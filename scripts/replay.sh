#!/usr/bin/env bash
# Builds the library and examples/replay, and replays the traces of data/: Rust and a C compiler are
# all it needs. Arguments go to the program: scripts/replay.sh --help.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
unset CARGO_BUILD_TARGET # what is built here runs here
bash scripts/tools.sh build >&2

target="${CARGO_TARGET_DIR:-target}"
out=$target/replay
mkdir -p "$out"

cargo build --release
"${CC:-cc}" -O2 -Wall -Wextra -Iinclude examples/replay/*.c -o "$out/replay" \
    -L"$target/release" -lradixkv -Wl,-rpath,"$(cd "$target/release" && pwd)" -lm

exec "$out/replay" --svg "$out/hit-rate.svg" "$@"
