#!/bin/sh
# Makes dist/reclaimd-VERSION-PLATFORM-PYTHON.tar.gz, and its checksum beside it: the program and all its dependencies as
# wheels, with the installer, for nodes that cannot reach a package index. It is for the Python version and the platform
# that it was made with. Make it on the oldest distribution it is meant for: on a newer one, pip may choose wheels that
# need a newer C library.
#
#   PYTHON=/usr/bin/python3 EXTRAS=[drill] DIST=dist config/install/bundle.sh    a DIST below the checkout, or absolute
#   config/install/bundle.sh install [STEP ...]    runs the installer of what would be in it, and makes no archive
#
# A PYTHON with a slash may be relative to the caller's directory; paths in pip's settings (such as PIP_FIND_LINKS) are
# absolute. A package without a wheel for this machine is built. Names are sorted and times fixed (SOURCE_DATE_EPOCH, or
# the last commit), so the same wheels make the same archive.
set -eu
umask 022

# As in install.sh: nothing is loaded from the caller's directory.
caller=$(pwd)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset PYTHONPATH PYTHONHOME
cd /
absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$caller/$1" ;; esac; }
step() { printf '  %s\n' "$*" >&2; }

here=$(dirname "$(readlink -f "$(absolute "$0")")")
root=$(dirname "$(dirname "$here")")
python=${PYTHON:-/usr/bin/python3} extras=${EXTRAS-[drill]} told=${DIST:-dist}
case $python in */*) python=$(absolute "$python") ;; esac
case $told in /*) dist=$told ;; *) dist=$root/$told ;; esac
if [ "${1:-}" = install ]; then
  work=$(mktemp -d)
else
  mkdir -p "$dist"
  work=$(mktemp -d "$dist/.making-XXXXXX")
fi
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

step "making an environment to build in"
if ! "$python" -I -m venv "$work/environment"; then
  echo "refused: $python cannot make a virtual environment: install its venv (Debian: apt-get install python3-venv)" >&2
  exit 2
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 1577836800)}
export SOURCE_DATE_EPOCH
made="$work/environment/bin/python"
step "fetching and building wheels: the program, and what it needs"
{
  "$made" -I -m pip --disable-pip-version-check wheel --progress-bar off --use-pep517 --wheel-dir "$work/wheels" \
    "$root$extras" || : >"$work/failed"
} | sed -u -n -e 's/^Collecting \([A-Za-z0-9._-]*\).*/    \1/p' -e 's|^Processing .*/\([^-]*\)-.*\.whl.*|    \1|p' >&2
[ ! -e "$work/failed" ] || exit 1

wheel=$(basename "$work"/wheels/reclaimd-*.whl)
version=${wheel#*-} version=${version%%-*}
made_for=$("$made" -I -c 'import sys, sysconfig; print("cp%d%d" % sys.version_info[:2], sysconfig.get_platform())')
name=reclaimd-$version-$(printf %s "${made_for#* }" | tr -- -. _)-${made_for%% *}
mkdir "$work/$name"
mv "$work/wheels" "$work/$name"
printf '%s\n%s\n' "$made_for" "$extras" >"$work/$name/BUNDLE"
cp "$root/README.md" "$root/LICENSE" "$here/install.sh" "$work/$name"
if [ "${1:-}" = install ]; then
  shift
  [ -z "${DESTDIR:-}" ] || DESTDIR=$(absolute "$DESTDIR")
  DESTDIR=${DESTDIR:-} PYTHON=$python EXTRAS=$extras "$work/$name/install.sh" "$@"
  exit
fi
tar --create --file "$work/$name.tar" --directory "$work" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
  --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX "$name"
gzip -n -9 "$work/$name.tar"
(cd "$work" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
mv "$work/$name.tar.gz" "$work/$name.tar.gz.sha256" "$dist"
echo "$told/$name.tar.gz"
