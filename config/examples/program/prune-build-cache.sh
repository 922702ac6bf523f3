#!/bin/sh
# A reclaim function: prunes a build cache, the least recently used files first, until what is missing is free. Asked for
# its plan, it names all files that may go, in this order, and removes nothing.
#   prune-build-cache.sh DIRECTORY HOURS [plan]
# HOURS: for how long a file was neither written nor read (with relatime, a read may not show for a day). For a cache of
# independent files that may vanish at any time: ccache, Go's, Bazel's disk cache. Not for a store with an index, such as
# BuildKit's: call its own command. Run it as the user whom the cache belongs to. It follows no symlink, enters no other
# filesystem, and keeps directories, files with several names, and names that JSON would have to escape. Needs GNU find.
set -eu
export LC_ALL=C
cd "$1"
minutes=$(($2 * 60))

old() {
  find . -xdev -type f -links 1 -amin "+$minutes" -mmin "+$minutes" ! -path '*["\\[:cntrl:]]*' "$@"
}

# Lines of last use, bytes and name, in the order in which they go.
in_order() {
  old -printf '%A@ %T@ %b %P\n' | awk '{
    used = $1 > $2 ? $1 : $2
    bytes = $3 * 512
    sub(/^[^ ]+ [^ ]+ [^ ]+ /, "")
    printf "%s %.0f %s\n", used, bytes, $0
  }' | sort -n
}

if [ "${3-}" = plan ]; then
  echo '{}'
  in_order | sed -E 's/^[^ ]+ ([^ ]+) (.*)$/{"name": "\2", "size": \1, "reason": "not used lately"}/'
  exit
fi
newest=$(in_order | awk -v bytes="$RECLAIMD_MISSING_BYTES" -v inodes="$RECLAIMD_MISSING_INODES" '
  bytes > 0 || inodes > 0 { newest = $1; bytes -= $2; inodes -= 1 }
  END { print newest }')
# What was used meanwhile is newer now, and stays.
[ -z "$newest" ] || old ! -newerat "@$newest" ! -newermt "@$newest" -delete
