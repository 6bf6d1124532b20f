#!/usr/bin/env bash
# Links a library once more, with a SONAME, for an installation:
#
#   scripts/link_with_soname.sh FOLDER NAME SONAME OUTPUT
#
# In cargo's folder libNAME.so has no SONAME, because programs that are linked there would look for
# a file that cargo does not create. So it is linked from libNAME.a of the same build: to the same
# exports, with the flags of build.rs, and with the libraries of the system that were found to be
# needed there, which are printed. A missing one would stop it: -z defs.
#
# What only debuggers read is left out, four fifths of the file; cargo's own has it.
set -euo pipefail

folder=$1 name=$2 soname=$3 output=$4
shared=$folder/lib$name.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$shared" | awk '{ print $3 }' >"$work/exports"
native=$(readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[lib\([^.]*\)\.so.*/-l\1/p' | tr '\n' ' ')
native=${native% }
[ -s "$work/exports" ] && [ -n "$native" ] || {
    echo "error: $shared has no exports, or needs nothing" >&2
    exit 1
}
{ echo '{ global:'; sed 's/$/;/' "$work/exports"; echo 'local: *; };'; } >"$work/version-script"
sed 's/^/-Wl,-u,/' "$work/exports" >"$work/roots"
# shellcheck disable=SC2086 # several libraries, and a compiler with options
${CC:-cc} -shared -o "$output" -Wl,-soname,"$soname" \
    -Wl,--version-script="$work/version-script" -Wl,--gc-sections -Wl,-O1 -Wl,--strip-debug \
    -Wl,-z,relro,-z,now,-z,nodelete,-z,noexecstack,-z,defs -Wl,--as-needed -nodefaultlibs \
    @"$work/roots" "$folder/lib$name.a" $native
echo "$native"
