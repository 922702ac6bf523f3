#!/bin/sh
# Makes dist/reclaimd-VERSION-PLATFORM-PYTHON.tar.gz, and its checksum beside it: the program and all its dependencies as
# wheels, with the installer, for nodes that cannot reach a package index. It is for the Python version and the platform
# that it was made with. Make it on the oldest distribution it is meant for: on a newer one, pip may choose wheels that
# need a newer C library.
#
#   PYTHON=python3 EXTRAS=[drill] DIST=dist config/install/bundle.sh        a DIST below the checkout, or absolute
#
# A PYTHON with a slash may be relative to the caller's directory; paths in pip's settings are absolute.
# Names are sorted and times fixed (SOURCE_DATE_EPOCH, or the last commit), so the same wheels make the same archive.
set -eu
umask 022

# As in install.sh: nothing is loaded from the caller's directory.
caller=$(pwd)
places=''
set -f
IFS=:
for each in ${PATH-}; do
  case $each in /*) places=$places${places:+:}$each ;; esac
done
set +f
unset IFS PYTHONPATH PYTHONHOME
export PATH="${places:-/usr/sbin:/usr/bin:/sbin:/bin}"
cd /
absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$caller/$1" ;; esac; }

here=$(dirname "$(readlink -f "$(absolute "$0")")")
root=$(dirname "$(dirname "$here")")
python=${PYTHON:-python3} extras=${EXTRAS-[drill]} told=${DIST:-dist}
case $python in */*) python=$(absolute "$python") ;; esac
case $told in /*) dist=$told ;; *) dist=$root/$told ;; esac
mkdir -p "$dist"
work=$(mktemp -d "$dist/.making-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

if ! "$python" -I -m venv "$work/environment"; then
  echo "refused: $python cannot make a virtual environment: install its venv (Debian: apt-get install python3-venv)" >&2
  exit 2
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 1577836800)}
export SOURCE_DATE_EPOCH
"$here/collect-wheels.sh" "$work/environment/bin/python" "$work/wheels" "$extras"

set -- "$work"/wheels/reclaimd-*.whl
version=$(basename "$1" | cut -d - -f 2)
tags=$("$work/environment/bin/python" -I -c 'import sys, sysconfig
print(sysconfig.get_platform().replace("-", "_").replace(".", "_"), "cp%d%d" % sys.version_info[:2])')
platform=${tags% *} tag=${tags#* }
name=reclaimd-$version-$platform-$tag

mkdir -p "$work/$name/config"
mv "$work/wheels" "$work/$name"
printf 'version=%s\npython=%s\nplatform=%s\nextras=%s\n' "$version" "$tag" "$platform" "$extras" >"$work/$name/BUNDLE"
cp "$root/README.md" "$root/LICENSE" "$work/$name"
for part in install systemd man completions schema examples reclaimd.conf.d reclaimd.yaml; do
  cp -R "$root/config/$part" "$work/$name/config"
done
ln -s config/install/install.sh "$work/$name/install.sh"
tar --create --file "$work/$name.tar" --directory "$work" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
  --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --exclude=__pycache__ "$name"
gzip -n -9 "$work/$name.tar"
(cd "$work" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
mv "$work/$name.tar.gz" "$work/$name.tar.gz.sha256" "$dist"
echo "$told/$name.tar.gz"
