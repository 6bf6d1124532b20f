# For `source`: what the loader knows.

# Whether it searches a folder, by whichever name: /lib may be a link to usr/lib.
is_searched() { # folder
    local folder
    while read -r folder; do
        [ ! "$folder" -ef "$1" ] || return 0
    done < <(ldconfig -vNX 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p')
    return 1
}

# Most folders it searches by its cache alone, which only root can make.
tell_loader() { # a folder that it searches, a new SONAME there
    if [ "$(id -u)" = 0 ]; then
        ldconfig
    elif ! ldconfig -p 2>/dev/null | grep -F " => $1/$2" >/dev/null; then
        echo "The loader does not know $1/$2 yet. Once, as root: ldconfig"
    fi
}
