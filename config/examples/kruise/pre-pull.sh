#!/bin/sh
# Makes room on every node of the DaemonSet before an image is pulled in advance, by an ImagePullJob of OpenKruise or by a
# CI. A node on which the room is there gets the label reclaimd.io/room=true, and loses it otherwise; only nodes with the
# label are named by the job.
#   pre-pull.sh AMOUNT [JOB.yaml]                        pre-pull.sh 12Gi image-pull-job.yaml
# AMOUNT: what the image takes on the disk, unpacked and compressed, and what is to be left after that.
kubectl=${KUBECTL:-kubectl}
room=$1 job=$2 lacking=0
[ -n "$room" ] || exit 2
pods=$("$kubectl" get pods -n kube-system -l app.kubernetes.io/name=reclaimd --field-selector=status.phase=Running \
  -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}') || exit 1
while read -r pod node; do
  [ -n "$node" ] || continue
  if "$kubectl" exec -n kube-system "pod/$pod" -- reclaimd reclaim --room "$room" --on imagefs </dev/null >&2; then
    "$kubectl" label node "$node" reclaimd.io/room=true --overwrite
  else
    echo "$node: no room for $room" >&2
    "$kubectl" label node "$node" reclaimd.io/room- </dev/null
    lacking=1
  fi
done <<EOF
$pods
EOF
[ -z "$job" ] || "$kubectl" apply -f "$job" || exit 1
exit "$lacking"
