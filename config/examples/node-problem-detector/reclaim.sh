#!/bin/sh
# A plugin of node-problem-detector that acts before it complains: it relieves pressure, and the condition reports what
# remains. The protocol: exit 0 OK, 1 problem, 2 unknown; one line of at most 80 characters.
#   reclaim.sh [OPTION of reclaimd]...
reclaimd=${RECLAIMD:-/opt/reclaimd/bin/reclaimd}
line=$("$reclaimd" check --npd "$@")
code=$?
if [ "$code" -eq 1 ]; then
  "$reclaimd" reclaim "$@" >/dev/null 2>&1
  line=$("$reclaimd" check --npd "$@")
  code=$?
fi
echo "${line:-reclaimd exited with $code}"
[ "$code" -le 1 ] || code=2
exit "$code"
