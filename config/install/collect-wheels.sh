#!/bin/sh
# Collects the wheels of the program in this checkout and of all its dependencies, for one interpreter that has pip.
#
#   collect-wheels.sh PYTHON DIRECTORY [EXTRAS]        EXTRAS as [drill] or [kubernetes,ui]
#
# install.sh and bundle.sh call it from / with absolute paths, so that nothing is loaded from the current directory.
# pip's own settings apply, such as its index and cache. A package without a wheel for this machine is built.
set -eu
umask 022
root=$(cd "$(dirname "$0")/../.." && pwd)
"$1" -I -m pip --quiet --disable-pip-version-check wheel --use-pep517 --wheel-dir "$2" "$root${3:-}"
