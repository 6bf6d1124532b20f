# For `source`: long commands whose output goes into a log.

# Runs a command, shows how far it is, and the whole log only when it fails: the script ends then.
logged() { # log, command...
    local log=$1
    shift
    "$@" 2>&1 | tee "$log" | show_steps || {
        cat "$log" >&2
        echo "error: $*" >&2
        exit 1
    }
}

# The lines in which make says how much is done: in place on a terminal, else one for each tenth.
show_steps() {
    local line next=0
    while IFS= read -r line; do
        [[ $line =~ ^\[\ *([0-9]+)%\] ]] || continue
        if [ -t 2 ]; then
            printf '\r\033[K%.79s' "$line"
        elif [ "${BASH_REMATCH[1]}" -ge $next ]; then
            printf '%s\n' "$line"
            next=$((BASH_REMATCH[1] / 10 * 10 + 10))
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K'
} >&2
