#!/usr/bin/env bash
# llama-server with radixkv in the seat of its prompt cache, beside its own: the time to the first
# token, by where the beginning of a prompt comes from, as a table on the standard output. What else
# there is to show is in tests/llama_server.
#
#   integrations/llama_server/run.sh [--quick]
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(bash scripts/llama_server.sh build)
model=$(bash scripts/model.sh gguf)
printf '## Time to first token, %s\n\n' "$(basename "$model" .gguf)"
exec python3 integrations/llama_server/tests/table.py "$program" "$model" \
    "${CARGO_TARGET_DIR:-target}/llama_server/table" "$@"
