#!/usr/bin/env bash
# Other engines with radixkv in the place of their prefix cache: the same tokens, the hits, their
# own tests, and the time, beside their own cache.
#
#   scripts/engines.sh [--quick] [name...]
#
# Names are folders of integrations/; all by default. Each has a run.sh, which installs the engine
# into target/ (gigabytes, once) and prints tables; --quick asks it for fewer requests. The tables
# are gathered in target/engines/report.md.
set -euo pipefail
cd "$(dirname "$0")/.."

options=() names=()
for argument in "$@"; do
    case "$argument" in
    --quick) options+=("$argument") ;;
    *) names+=("$argument") ;;
    esac
done
if [ ${#names[@]} = 0 ]; then
    for script in integrations/*/run.sh; do names+=("$(basename "$(dirname "$script")")"); done
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/engines"
failed=()
for name in "${names[@]}"; do
    [ -f "integrations/$name/run.sh" ] ||
        { echo "engines.sh: there is no integrations/$name/run.sh" >&2; exit 2; }
    # Not in a condition: it would go on after what fails.
    set +e
    bash "integrations/$name/run.sh" "${options[@]}" | tee "$target/engines/$name.log"
    code=${PIPESTATUS[0]}
    set -e
    [ "$code" = 0 ] || failed+=("$name")
done
for name in "${names[@]}"; do
    printf '# %s\n\n' "$name"
    cat "$target/engines/$name.log"
    echo
done >"$target/engines/report.md"
echo "$target/engines/report.md"
[ ${#failed[@]} = 0 ] || { echo "engines.sh: failed: ${failed[*]}" >&2; exit 1; }
