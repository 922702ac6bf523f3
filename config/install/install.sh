#!/bin/sh
# Installs reclaimd on this machine from the wheels beside it, without a network, or removes it. It is the installer of a
# bundle (`make bundle`); `make install` makes a bundle and runs it.
#
#   ./install.sh                  program, files, start
#   ./install.sh program files    only these steps: nothing is started
#   ./install.sh uninstall        removes what was installed; configuration and state are kept unless PURGE=1
#
#   program   /opt/reclaimd: a virtual environment, made beside the existing one, which it replaces once it is complete
#   files     `reclaimd install --systemd`: units, manual, completions, and a configuration if there is none; uninstall is
#             `reclaimd uninstall`
#   start     shows what `reclaimd doctor` finds, then (re)starts the service, unless its configuration is rejected
#
#   DESTDIR=DIRECTORY          installs below another root. Nothing outside it is touched, and no service is started. The
#                              files work once they are moved to /; as root, so that they belong to root. One that others
#                              may write is refused, and so is a directory below it
#   PYTHON=/usr/bin/python3    the interpreter that the service will use
#   EXTRAS=[drill]             for drills on an embedded node
#
# The first two may be relative to the caller's directory. Exit 0 done, 1 failed, 2 refused. Unless the message says
# otherwise, a failure leaves an earlier installation untouched.
set -eu
umask 022

# Root may run this from a directory that others can write: no program and no module is loaded from there.
caller=$(pwd)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset PYTHONPATH PYTHONHOME
cd /

PLACE=/opt/reclaimd
DESTDIR=${DESTDIR:-} EXTRAS=${EXTRAS:-} PURGE=${PURGE:-0}

absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$caller/$1" ;; esac; }
tell() { printf '%s\n' "$*"; }
step() { printf '  %s\n' "$*" >&2; }
refuse() { printf 'refused: %s\n' "$*" >&2; exit 2; }
fail() { printf 'failed: %s\n' "$*" >&2; exit 1; }

# Undoes or finishes an interrupted run: this one, or an earlier one that a power loss or SIGKILL has ended.
settle() {
  if [ -e "$place.old" ]; then
    if [ -e "$place" ]; then
      rm -rf "$place.old"
    else
      mv -T "$place.old" "$place"
    fi
  fi
  rm -rf "$place.new"
}

# The program of an environment, which may still have to be moved to its place.
reclaimd_of() { environment=$1; shift; "$environment/bin/python" -I -m eviction "$@"; }

packages_of() { ls "$1"/lib/python3*/site-packages 2>/dev/null | sed -n 's/\.dist-info$//p' | sort; }

# The program and the standard library of an interpreter that can do this, and what wheels are made for.
described() {
  "$1" -I -B -c "import os, sys, sysconfig
$2
assert sys.version_info >= (3, 11)
print(os.path.realpath(sys.executable), os.__file__, 'cp%d%d' % sys.version_info[:2], sysconfig.get_platform())" 2>/dev/null
}

no_python() {
  refuse "$1 is not Python 3.11 or newer with venv (Debian: apt-get install python3-venv): name another one, as in PYTHON=/usr/bin/python3"
}

# Refuses a root below which somebody else could put or replace what is run, written or removed here; the second and later
# arguments are directories below it. The rule is the program's own, as it lies beside this script: in a wheel, in the
# environment it is installed in, or in the sources.
trusted() {
  case $here in */config/install) sources=${here%/config/install} ;; *) sources=none ;; esac
  for code in "$here"/wheels/reclaimd-*.whl "$here"/lib/python3*/site-packages "$sources" none; do
    [ ! -e "$code" ] || break
  done
  [ "$code" != none ] || refuse "there are no wheels beside $0, as in a bundle: in a checkout, use make install"
  by=$here/bin/python
  [ -x "$by" ] || by=$python
  described "$by" "" >/dev/null || no_python "$by"
  "$by" -I -B -c "import sys
sys.path.insert(0, sys.argv[1])
from eviction.cli.below_root import main
main(*sys.argv[2:])" "$code" "$@" || exit
}

# ---- the program

interpreter() {
  made_of=$(described "$python" "import ensurepip, venv; ensurepip.version()") || no_python "$python"
  for path in $made_of; do
    case $path in
      /root/* | /home/* | /run/user/* | /tmp/* | /var/tmp/*)
        refuse "$python is $path, which the service cannot see (ProtectHome=, PrivateTmp=): name one outside home and temporary directories, as in PYTHON=/usr/bin/python3"
        ;;
    esac
  done
  [ -d "$here/wheels" ] || refuse "there are no wheels beside $0, as in a bundle: in a checkout, use make install"
  made_for=$(head -n 1 "$here/BUNDLE")
  case $made_of in
    *" $made_for") ;;
    *) refuse "the bundle is for $made_for, $python is ${made_of#* * }: make one with that Python, or name another one in PYTHON=" ;;
  esac
}

program() {
  before=$(packages_of "$place") new=$place.new
  mkdir -p "${place%/*}"
  step "making the environment"
  begin_environment
  step "installing $(ls "$here/wheels" | wc -l) packages"
  pip uninstall --yes reclaimd >/dev/null 2>&1 || true
  pip install --no-index --find-links "$here/wheels" --upgrade --upgrade-strategy eager --no-compile "reclaimd$EXTRAS" || \
    fail "pip could not install the program (see above); the bundle has the extras $(sed 1d "$here/BUNDLE")"
  step "compiling"
  finish_environment
  if [ -z "$DESTDIR" ] && [ -e /etc/reclaimd/reclaimd.yaml ]; then
    step "asking the new program whether it accepts the configuration"
    reclaimd_of "$new" config >/dev/null || \
      refuse "the new program does not accept the configuration (see above): fix it first"
  fi
  step "writing it to the disk, and putting it into its place"
  put_into_place
  if [ -z "$before" ]; then word=new; else word=changed; fi
  printf '%-9s%s (%s, %s)\n' "$word" "$PLACE" "$(reclaimd_of "$place" --version)" "$("$python" -V)"
  [ -z "$before" ] || {
    printf '%s\n' "$before" | sed 's/^/  - /'
    packages_of "$place" | sed 's/^/  + /'
  } | sort -k 2 | uniq -u -f 1
}

# Without the user's settings, which may name another target or an index.
pip() { PIP_CONFIG_FILE=/dev/null "$new/bin/python" -I -m pip --isolated --quiet --disable-pip-version-check "$@"; }

# An existing environment of the same Python is copied, as more may have been installed into it. If it is of another
# Python, or a symlink in it leads to a directory elsewhere, which pip would follow in the copy, only what is not the
# environment's own is copied.
begin_environment() {
  if [ "$(described "$place/bin/python" "import pip")" = "$made_of" ] && \
    [ -z "$(find "$place" -type l -xtype d ! -name lib64)" ]; then
    cp -a "$place" "$new"
  else
    "$python" -I -m venv "$new" || fail "$python could not make a virtual environment (see above)"
    for path in "$place"/*; do
      case ${path##*/} in
        bin | lib | lib64 | include | share | pyvenv.cfg | '*') ;;
        *) cp -a "$path" "$new" ;;
      esac
    done
  fi
}

# The scripts that pip has just made, and those that activate the environment, name the directory where it was made. Only
# the program is kept, and names the final one; the others run as `python -m`. Byte code is not checked against its source:
# the program never writes any, and copying may change the times of files.
finish_environment() {
  for path in "$new"/bin/*; do
    case ${path##*/} in
      python*) ;;
      [Aa]ctivate*) rm -f "$path" ;;
      *) if grep -qF "$new" "$path"; then rm -f "$path"; fi ;;
    esac
  done
  printf '#!%s/bin/python -I\nimport sys\n\nfrom eviction.__main__ import main\n\nsys.exit(main())\n' "$PLACE" >"$new/bin/reclaimd"
  chmod 755 "$new/bin/reclaimd"
  sed -i '/^command = /d' "$new/pyvenv.cfg"
  find "$new/lib" -name __pycache__ -prune -exec rm -rf {} +
  "$new/bin/python" -I -B -m compileall -q -x '/site-packages/pip/' --invalidation-mode unchecked-hash \
    -s "$new" -p "$PLACE" "$new/lib" >/dev/null || true
}

# Written to the disk first: after a power loss a name may be there before its content. The next run undoes one that ended
# between the two renames (`settle`).
put_into_place() {
  sync -f "$new" || fail "the new environment cannot be written to the disk (see above)"
  [ ! -e "$place" ] || mv -T "$place" "$place.old" || fail "$place cannot be renamed (see above)"
  mv -T "$new" "$place"
  rm -rf "$place.old"
}

# ---- the files, and the service

files() {
  [ -x "$place/bin/python" ] || refuse "there is no $DESTDIR$PLACE: install the program first"
  step "placing units, manual, completions and, if there is none, a configuration"
  reclaimd_of "$DESTDIR$PLACE" install --systemd --root "${DESTDIR:-/}" || exit
  mkdir -p "$DESTDIR/usr/local/sbin"
  ln -sfn "$PLACE/bin/reclaimd" "$DESTDIR/usr/local/sbin/reclaimd"
  [ "$here" = "$place" ] || install -m 0755 "$here/install.sh" "$place/install.sh"
}

start() {
  [ -z "$DESTDIR" ] || refuse "start is for this machine, not for a DESTDIR"
  [ -x "$PLACE/bin/reclaimd" ] || refuse "there is no $PLACE/bin/reclaimd to start: install program and files first"
  tell "reclaimd doctor:"
  code=0
  "$PLACE/bin/reclaimd" doctor || code=$?
  [ "$code" -le 1 ] || fail "the service is not started: doctor ended with $code (see above). What was installed is kept"
  step "starting the service"
  systemctl daemon-reload
  # Sockets are not reopened while their service runs.
  systemctl stop reclaimd.service reclaimd.socket reclaimd-healthz.socket
  systemctl enable --now reclaimd || fail "the service does not start: journalctl -u reclaimd says why. What was installed is kept"
  tell "reclaimd runs: reclaimd status, journalctl -u reclaimd"
}

uninstall() {
  [ -e "$place" ] || refuse "reclaimd is not installed below ${DESTDIR:-/}"
  if [ "$PURGE" = 1 ]; then set -- --purge; else set --; fi
  reclaimd_of "$DESTDIR$PLACE" uninstall --root "${DESTDIR:-/}" "$@" || \
    fail "the program could not remove what it has placed (see above): if it does not run, install it again first"
  rm -rf "$DESTDIR/usr/local/sbin/reclaimd" "$place"
  if [ -L "$DESTDIR$PLACE" ]; then tell "left     $PLACE"; else tell "gone     $PLACE"; fi
}

# ---- which steps

here=$(dirname "$(readlink -f "$(absolute "$0")")")
python=${PYTHON:-/usr/bin/python3}
case $python in */*) python=$(absolute "$python") ;; esac
if [ -n "$DESTDIR" ]; then
  DESTDIR=$(absolute "$DESTDIR")
  trusted "$DESTDIR" # and makes it
  DESTDIR=$(readlink -f "$DESTDIR")
  [ "$DESTDIR" != / ] || DESTDIR=''
fi
place=$(readlink -m "$DESTDIR$PLACE") # it may be a symlink; the new environment is made beside what it leads to
case $place in "$DESTDIR"/*) ;; *) refuse "$DESTDIR$PLACE leads to $place, which is not below the DESTDIR" ;; esac
if [ $# -eq 0 ]; then
  if [ -n "$DESTDIR" ]; then set -- program files; else set -- program files start; fi
fi
for step in "$@"; do
  case $step in
    program) interpreter ;;
    files | uninstall) ;;
    start)
      if [ -z "$DESTDIR" ] && [ ! -d /run/systemd/system ]; then
        refuse "systemd does not run here, so no service can be started: 'program files' installs without starting it, DESTDIR=DIRECTORY below another root"
      fi
      ;;
    *) refuse "$step is not a step; the steps are program, files and start (without any: all three), and uninstall" ;;
  esac
done
[ -n "$DESTDIR" ] || [ "$(id -u)" = 0 ] || \
  refuse "only root may write /opt, /etc and /usr/local; DESTDIR=DIRECTORY installs below another root"
trusted "${DESTDIR:-/}" "${place#"$DESTDIR"}/bin" /usr/local/sbin
[ ! -e "$DESTDIR${PLACE%/*}" ] || trusted "$DESTDIR${PLACE%/*}"
trap settle EXIT
trap 'exit 1' HUP INT TERM
settle
for step in "$@"; do "$step"; done
