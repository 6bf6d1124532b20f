# For `source`: what the loader knows.

# Whether it searches a folder, by whichever name: /lib may be a link to usr/lib.
is_searched() { # folder
    local folder
    while read -r folder; do
        [ ! "$folder" -ef "$1" ] || return 0
    done < <(ldconfig -vNX 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p')
    return 1
}
