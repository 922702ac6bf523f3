#!/bin/sh
# Installs reclaimd on this machine, or removes it. `make install` runs it from a checkout. A bundle (`make bundle`) has it
# too, and is installed without a network.
#
#   ./install.sh                  program, files, start
#   ./install.sh program files    only these steps: nothing is started
#   ./install.sh uninstall        removes what was installed; configuration and state are kept unless PURGE=1
#
#   program   /opt/reclaimd: a virtual environment, made beside the existing one, which it replaces once it is complete
#   files     units, manual, completions, and a configuration if there is none
#   start     shows what `reclaimd doctor` finds, then (re)starts the service, unless its configuration is rejected
#
#   DESTDIR=DIRECTORY          installs below another root. Nothing outside it is touched but pip's cache, and no service is
#                              started. The files work once they are moved to /; as root, so that they belong to root
#   PYTHON=/usr/bin/python3    the interpreter that the service will use
#   EXTRAS=[drill]             kubernetes, ui, drill; several as in [kubernetes,ui]
#
# The first two may be relative to the caller's directory; paths in pip's settings (such as PIP_FIND_LINKS) are absolute.
# Exit 0 done, 1 failed, 2 refused. Unless the message says otherwise, a failure leaves an earlier installation untouched.
set -eu
umask 022

# Root may run this from a directory that others can write: no program and no module is loaded from there, not even
# through an empty or relative entry of PATH.
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

PLACE=/opt/reclaimd
CONFIGURATION=/etc/reclaimd/reclaimd.yaml
STATE=/var/lib/reclaimd
SOCKETS='reclaimd.socket reclaimd-healthz.socket'

absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$caller/$1" ;; esac; }

here=$(dirname "$(readlink -f "$(absolute "$0")")")
root=$(cd "$here/../.." && pwd)
config=$root/config
work='' new=''

tell() { printf '%s\n' "$*"; }
refuse() { printf 'refused: %s\n' "$*" >&2; exit 2; }
fail() { printf 'failed: %s\n' "$*" >&2; exit 1; }

# Whatever happens, nothing half made is left behind, and what was there before is restored.
clean_up() {
  [ -z "$work" ] || rm -rf "$work"
  [ -z "$new" ] || settle
}

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

# ---- what is required

need_root() {
  [ -n "$DESTDIR" ] || [ "$(id -u)" = 0 ] || \
    refuse "only root may write /opt, /etc and /usr/local; DESTDIR=DIRECTORY installs below another root"
}

need_systemd() {
  if [ ! -d /run/systemd/system ] || ! command -v systemctl >/dev/null; then
    refuse "systemd does not run here, so no service can be started: 'program files' installs without starting it, DESTDIR=DIRECTORY below another root"
  fi
}

need_source() {
  [ -d "$root/wheels" ] || [ -f "$root/pyproject.toml" ] || refuse "$0 is neither in a checkout nor in a bundle of reclaimd"
}

# Sets python, number (311 for 3.11), tag and platform.
need_python() {
  wanted=${PYTHON:-}
  if [ -z "$wanted" ]; then
    wanted=python3
    [ ! -x /usr/bin/python3 ] || wanted=/usr/bin/python3
  fi
  case $wanted in */*) wanted=$(absolute "$wanted") ;; esac
  command -v "$wanted" >/dev/null || \
    refuse "there is no $wanted: install Python 3.11 or newer with venv (Debian: python3-venv), or name one, as in PYTHON=/usr/bin/python3"
  said=$("$wanted" -I - <<'ASK'
import os, sys, sysconfig
python = getattr(sys, "_base_executable", None) or sys.executable
# What ProtectHome= and PrivateTmp= of the units hide.
hidden = ("/root/", "/home/", "/run/user/", "/tmp/", "/var/tmp/")
needed = (python, os.path.realpath(python), os.path.realpath(os.__file__))
unseen = [path for path in needed if path.startswith(hidden)]
print("number=%d" % (sys.version_info[0] * 100 + sys.version_info[1]))
print("tag=cp%d%d" % sys.version_info[:2])
print("platform=" + sysconfig.get_platform().replace("-", "_").replace(".", "_"))
print("python=" + python)
print("unseen=" + "".join(unseen[:1]))
ASK
  ) || refuse "$wanted is not a working Python: name another one, as in PYTHON=/usr/bin/python3"
  number=$(value number "$said") tag=$(value tag "$said") platform=$(value platform "$said")
  python=$(value python "$said") unseen=$(value unseen "$said")
  [ "$number" -ge 311 ] || refuse "$wanted is older than Python 3.11: name another one, as in PYTHON=/usr/bin/python3.11"
  [ -z "$unseen" ] || \
    refuse "$wanted is $unseen, which the service cannot see (ProtectHome=, PrivateTmp=): name one outside home and temporary directories, as in PYTHON=/usr/bin/python3"
  "$python" -I -c 'import ensurepip, venv; ensurepip.version()' >/dev/null 2>/dev/null || \
    refuse "$python cannot make a virtual environment: install its venv (Debian: apt-get install python3-venv)"
}

# A bundle is for one version of Python on one platform, and has the extras that it was made with.
need_fitting_bundle() {
  [ -d "$root/wheels" ] || return 0
  made_for=$(cat "$root/BUNDLE")
  [ "$(value python "$made_for") $(value platform "$made_for")" = "$tag $platform" ] || \
    refuse "the bundle is for $(value python "$made_for") on $(value platform "$made_for"), $python is $tag on $platform: make one with that Python, or name another one in PYTHON="
  for extra in $(words "$EXTRAS"); do
    case " $(words "$(value extras "$made_for")") " in
      *" $extra "*) ;;
      *) refuse "the extra $extra is not in the bundle, which has $(value extras "$made_for"): make one with make bundle EXTRAS=$EXTRAS" ;;
    esac
  done
}

value() { printf '%s\n' "$2" | sed -n "s/^$1=//p"; }
words() { printf '%s' "$1" | tr '[],' '   '; }

# ---- the program

program() {
  need_python
  need_fitting_bundle
  before=$(packages_of "$place")
  new=$place.new
  mkdir -p "$(dirname "$place")"
  begin_environment
  if [ -d "$root/wheels" ]; then
    wheels=$root/wheels
  else
    wheels=$work/wheels
    "$here/collect-wheels.sh" "$new/bin/python" "$wheels" "$EXTRAS" || \
      fail "pip could not get or build what is needed (see above); for a machine without a package index, make a bundle: make bundle"
  fi
  pip uninstall --yes reclaimd >/dev/null 2>&1 || true
  pip install --no-index --find-links "$wheels" --upgrade --upgrade-strategy eager --no-compile "reclaimd$EXTRAS" || \
    fail "pip could not install the program (see above)"
  finish_environment
  check_configuration
  put_into_place
  tell_packages "$before" "$(packages_of "$place")"
}

# Without the user's settings, which may name another target or an index.
pip() { PIP_CONFIG_FILE=/dev/null "$new/bin/python" -I -m pip --isolated --quiet --disable-pip-version-check "$@"; }

# An existing environment of the same Python is copied, as plugins may have been installed into it. If it is of another
# Python, or a symlink in it leads elsewhere, which pip would follow in the copy, only what is not the environment's own is
# copied.
begin_environment() {
  made_of="home = $(dirname "$python")" packages=lib/python${number%??}.$((number % 100))/site-packages
  if [ -d "$place/$packages" ] && [ "$(readlink -f "$place/$packages")" = "$place/$packages" ] && [ ! -L "$place/bin" ] && \
    grep -qxF "$made_of" "$place/pyvenv.cfg"; then
    cp -a "$place" "$new"
  else
    "$python" -I -m venv "$new" || fail "$python could not make a virtual environment (see above)"
    for path in "$place"/*; do
      case ${path##*/} in
        bin | lib | lib64 | include | share | pyvenv.cfg | '*') ;;
        *) cp -a "$path" "$new" ;;
      esac
    done
    if grep -qs '^\[reclaimd\.' "$place"/lib/python*/site-packages/*.dist-info/entry_points.txt; then
      tell "the environment was made anew: install reclaimd's plugins again"
    fi
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

# An upgrade that would reject the configuration of this machine does not take place.
check_configuration() {
  if [ -z "$DESTDIR" ] && [ -e "$CONFIGURATION" ]; then
    "$new/bin/python" -I -m eviction config >/dev/null || \
      refuse "the new program does not accept the configuration (see above): fix it first"
  fi
}

# Written to the disk first: after a power loss a name may be there before its content. The next run undoes one that ended
# between the two renames (`settle`).
put_into_place() {
  sync -f "$new" || fail "the new environment cannot be written to the disk (see above)"
  [ ! -e "$place" ] || mv -T "$place" "$place.old" || fail "$place cannot be renamed (see above)"
  mv -T "$new" "$place"
  rm -rf "$place.old"
}

packages_of() {
  for path in "$1"/lib/python*/site-packages/*.dist-info; do
    [ ! -d "$path" ] || basename "$path" .dist-info
  done | sort
}

tell_packages() {
  if [ -z "$1" ]; then
    tell "new      $PLACE ($(printf '%s\n' "$2" | sed -n 's/^reclaimd-/reclaimd /p'), $("$python" -V))"
    return
  fi
  printf '%s\n' "$1" >"$work/before"
  printf '%s\n' "$2" >"$work/after"
  tell "changed  $PLACE ($("$python" -V))"
  comm -23 "$work/before" "$work/after" | sed 's/^/  - /'
  comm -13 "$work/before" "$work/after" | sed 's/^/  + /'
}

# ---- the files

# Calls $1 with mode, source and target of each.
each_file() {
  for file in "$config"/systemd/reclaimd*.service "$config"/systemd/reclaimd*.socket; do
    "$1" 0644 "$file" "/etc/systemd/system/${file##*/}"
  done
  for file in "$config"/systemd/reclaimd.service.d/*.conf; do # read by systemd only once they are copied to *.conf
    "$1" 0644 "$file" "/etc/systemd/system/reclaimd.service.d/${file##*/}.example"
  done
  "$1" 0644 "$config/man/reclaimd.1" /usr/local/share/man/man1/reclaimd.1
  "$1" 0644 "$config/completions/reclaimd.bash" /usr/local/share/bash-completion/completions/reclaimd
  "$1" 0644 "$config/completions/_reclaimd" /usr/local/share/zsh/site-functions/_reclaimd
  "$1" 0644 "$config/completions/reclaimd.fish" /usr/local/share/fish/vendor_completions.d/reclaimd.fish
  "$1" 0644 "$config/schema/configuration.v1alpha1.json" /etc/reclaimd/schema/configuration.v1alpha1.json
  "$1" 0755 "$here/install.sh" "$PLACE/install.sh"
}

place_file() {
  if [ ! -e "$DESTDIR$3" ]; then
    tell "new      $3"
  elif ! cmp -s "$2" "$DESTDIR$3"; then
    tell "changed  $3"
  fi
  install -D -m "$1" "$2" "$DESTDIR$3"
  tell "$3" >>"$work/placed"
}

files() {
  : >"$work/placed"
  [ -n "$DESTDIR" ] || end_xfs_helper
  mkdir -p "$place"
  each_file place_file
  mkdir -p "$DESTDIR/usr/local/sbin"
  ln -sfn "$PLACE/bin/reclaimd" "$DESTDIR/usr/local/sbin/reclaimd"
  tell /usr/local/sbin/reclaimd >>"$work/placed"
  if [ -s "$place/installed-files" ]; then # by another version, which had more files
    grep -vxFf "$work/placed" "$place/installed-files" | while read -r gone; do
      rm -f "$DESTDIR$gone"
      tell "gone     $gone"
    done
  fi
  install -D -m 0644 "$work/placed" "$place/installed-files"
  if [ -e "$DESTDIR$CONFIGURATION" ] || [ -L "$DESTDIR$CONFIGURATION" ]; then
    tell "kept     $CONFIGURATION (every field: reclaimd help configuration)"
  else
    install -D -m 0600 "$config/reclaimd.yaml" "$DESTDIR$CONFIGURATION"
    tell "new      $CONFIGURATION"
  fi
}

# ---- the service

start() {
  [ -z "$DESTDIR" ] || refuse "start is for this machine, not for a DESTDIR"
  need_systemd
  [ -x "$PLACE/bin/reclaimd" ] || refuse "there is no $PLACE/bin/reclaimd to start: install program and files first"
  tell "reclaimd doctor:"
  code=0
  "$PLACE/bin/reclaimd" doctor || code=$?
  [ "$code" -le 1 ] || fail "the service is not started: doctor ended with $code (see above). What was installed is kept"
  systemctl daemon-reload
  # Sockets are not reopened while their service runs.
  # shellcheck disable=SC2086 # words
  systemctl stop reclaimd.service $SOCKETS
  systemctl enable --now reclaimd || fail "the service does not start: journalctl -u reclaimd says why. What was installed is kept"
  tell "reclaimd runs: reclaimd status, journalctl -u reclaimd"
}

uninstall() {
  purge=${PURGE:-0}
  if [ ! -e "$place" ] && [ ! -e "$DESTDIR/etc/systemd/system/reclaimd.service" ]; then
    [ "$purge" = 1 ] && [ -e "$DESTDIR/etc/reclaimd" ] || refuse "reclaimd is not installed below ${DESTDIR:-/}"
  fi
  if [ -z "$DESTDIR" ]; then
    stop_service
    leave_ballast
  fi
  if [ -s "$place/installed-files" ]; then
    cp "$place/installed-files" "$work/placed"
  else
    each_file name_file >"$work/placed"
  fi
  while read -r path; do
    rm -f "$DESTDIR$path"
  done <"$work/placed"
  rm -rf "$place"
  for path in etc/systemd/system/reclaimd.service.d usr/local/share/doc/reclaimd etc/reclaimd/schema; do
    rmdir "$DESTDIR/$path" 2>/dev/null || true
  done
  if [ "$purge" = 1 ]; then
    rm -rf "$DESTDIR/etc/reclaimd" "$DESTDIR$STATE" "$DESTDIR/run/reclaimd"
  fi
  if [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
  tell "removed  $PLACE, and units, manual, completions"
  for path in "$DESTDIR$PLACE" "$DESTDIR/etc/reclaimd" "$DESTDIR$STATE" "$DESTDIR"/etc/systemd/system/reclaimd* \
    "$DESTDIR"/etc/systemd/system/*.d/reclaimd*.conf; do
    [ ! -e "$path" ] && [ ! -L "$path" ] || tell "left     ${path#"$DESTDIR"}"
  done
}

name_file() { tell "$3"; }

stop_service() {
  if [ -d /run/systemd/system ] && [ -e /etc/systemd/system/reclaimd.service ]; then
    # shellcheck disable=SC2086 # words
    systemctl disable --now reclaimd.service $SOCKETS
    systemctl stop reclaimd-healthz.service
    end_xfs_helper
  fi
}

# An earlier version had it. Enabled, it would outlive its program.
end_xfs_helper() {
  if [ -d /run/systemd/system ] && [ -e /etc/systemd/system/reclaimd-xfs.socket ]; then
    systemctl disable --now reclaimd-xfs.socket
    systemctl stop reclaimd-xfs.service
  fi
}

# Without the program nothing uses a ballast, and it still takes its space.
leave_ballast() {
  [ -x "$PLACE/bin/reclaimd" ] || return 0
  if found=$("$PLACE/bin/reclaimd" ballast status 2>/dev/null); then
    if [ "$purge" = 1 ]; then
      "$PLACE/bin/reclaimd" ballast remove || tell "left     the ballast: $found"
    else
      tell "left     the ballast, which still takes its space: $found"
    fi
  fi
}

# ---- which steps

DESTDIR=${DESTDIR:-} EXTRAS=${EXTRAS:-}
if [ -n "$DESTDIR" ]; then
  DESTDIR=$(absolute "$DESTDIR")
  mkdir -p "$DESTDIR"
  DESTDIR=$(readlink -f "$DESTDIR")
  [ "$DESTDIR" != / ] || DESTDIR=''
fi
place=$(readlink -m "$DESTDIR$PLACE") # it may be a symlink; the new environment is made beside what it leads to
case $place in "$DESTDIR"/*) ;; *) refuse "$DESTDIR$PLACE leads to $place, which is not below the DESTDIR" ;; esac
[ $# -gt 0 ] || set -- install
for step in "$@"; do
  case $step in
    install | program | files | start | uninstall) ;;
    *) refuse "$step is not a step; the steps are program, files, start, install (these three) and uninstall" ;;
  esac
done
need_root
work=$(mktemp -d)
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
settle
for step in "$@"; do
  case $step in
    install)
      need_source
      [ -n "$DESTDIR" ] || need_systemd
      program
      files
      [ -n "$DESTDIR" ] || start
      ;;
    program | files)
      need_source
      "$step"
      ;;
    *) "$step" ;;
  esac
done
