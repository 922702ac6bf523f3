#!/bin/sh
# A hook before a large pull: makes room for the image, and pulls it only if the room is there. reclaimd chooses what goes
# before the pull, not in the middle of it, when the disk has almost reached its mark.
#   pull.sh IMAGE AMOUNT [OPTION of reclaimd]...         pull.sh registry.example/model:1 12Gi
# AMOUNT: what the image takes on the disk, unpacked and compressed (two to four times its size in the registry), and what
# is to be left after that (`reclaimd config` shows the marks). With --dry-run nothing is removed, and nothing pulled.
reclaimd=${RECLAIMD:-/opt/reclaimd/bin/reclaimd}
image=$1 room=$2
shift 2 || exit 2
"$reclaimd" reclaim --room "$room" --on imagefs "$@" >&2 || {
  code=$?
  echo "$image is not pulled: reclaimd exited with $code, so $room is not available for images" >&2
  exit 1
}
case " $* " in *" --dry-run "*) exit 0 ;; esac
exec "${CRICTL:-crictl}" pull "$image"
