#!/bin/sh
# A reclaim function: has BuildKit prune what was not used lately from its cache, the longest unused first, until what is
# missing is free. Asked for its plan, it names what may go, in this order, and removes nothing. What a build uses stays.
#   prune-buildkit.sh ADDRESS MINUTES [plan]
# ADDRESS: of the daemon, as in buildctl --addr: unix:///run/buildkit/buildkitd.sock, and with rootless BuildKit
# unix:///run/user/UID/buildkit/buildkitd.sock (run it as that user). With the worker of containerd the cache lies in the
# namespace "buildkit" of containerd, which the kubelet does not see. MINUTES: what was used later stays. Needs buildctl.
set -eu
address=$1 minutes=$2

# Lines of bytes, last use in seconds, whether a build uses it, and id.
records() {
  buildctl --addr "$address" du --format '{{range .}}{{.Size}} {{if .LastUsedAt}}{{.LastUsedAt.Unix}}{{else}}{{.CreatedAt.Unix}}{{end}} {{.InUse}} {{.ID}}
{{end}}'
}

if [ "${3-}" = plan ]; then
  echo '{}'
  records | sort -n -k 2,2 | awk -v before="$(($(date +%s) - minutes * 60))" '
    NF == 4 && $3 == "false" && $2 < before {
      printf "{\"name\": \"%s\", \"size\": %s, \"reason\": \"not used lately\"}\n", $4, $1
    }'
  exit
fi
# buildctl takes megabytes; without a limit it prunes all that was not used lately.
limit=$(records | awk -v missing="$RECLAIMD_MISSING_BYTES" '
  NF == 4 { all += $1 }
  END { if (missing > 0 && all > missing) printf "--keep-storage=%.3f", (all - missing) / 1e6 }')
exec buildctl --addr "$address" prune --keep-duration "${minutes}m" ${limit:+"$limit"}
