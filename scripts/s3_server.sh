#!/usr/bin/env bash
# Prints the path of a server of S3 for tests, moto of PyPI, and installs it in target/s3 if it is
# not there.
set -euo pipefail
cd "$(dirname "$0")/.."

version=5.1.4
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/s3")
server=$folder/bin/moto_server
# Several tests may want it at once.
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ ! -e "$folder/moto-$version" ]; then
    python3 -m venv --clear "$folder/environment" >&2
    "$folder/environment/bin/pip" install -q --disable-pip-version-check \
        "moto[s3,server]==$version" >&2
    mkdir -p "$folder/bin"
    ln -sf "$folder/environment/bin/moto_server" "$server"
    touch "$folder/moto-$version"
fi
echo "$server"
