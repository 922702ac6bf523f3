#!/bin/sh
# Which nodes of a cluster would lose what: `reclaimd plan` in every pod of the DaemonSet, as one table. Removes nothing.
#   plan.sh [OPTION of reclaimd plan]...             plan.sh --signal imagefs.available --until 30%
# Without options: all that may go. Nodes under pressure come first, then those that would lose most. AVAILABLE: of the
# lowest signal, or one under pressure. FREES: what the removals free; where that is not known, the runtime's sizes. Nodes
# that do not answer are named on stderr, with the reason, and the exit code is 1.
# PARALLEL: how many nodes are asked at a time (16). PATIENCE: how long each is waited for (60s). Whoever runs it must be
# allowed to `get pods` and `create pods/exec` in kube-system. Needs jq, and `timeout` of coreutils.
export KUBECTL="${KUBECTL:-kubectl}" PATIENCE="${PATIENCE:-60s}" ANSWERS ROW
ROW='
select(.kind == "Plan")
| [.removals[] | select(.result == "planned")] as $goes
| ([.thresholds_met[].signal] | unique) as $met
| {
    node: $node,
    pressure: ($met | join(", ")),
    available: (
      [.observations[] | select(.capacity > 0) | {signal, share: (.available / .capacity)}]
      | min_by(.signal as $signal | ($met | index($signal)) == null, .share)
    ),
    containers: ([$goes[] | select(.kind == "container")] | length),
    images: ([$goes[] | select(.kind == "image")] | length),
    bytes: ([$goes[] | .frees // .size // 0] | add // 0),
    largest: ([$goes[] | select(.kind == "image")] | max_by(.size // 0))
  }'
ASK='
read -r pod phase node <<END
$1
END
node=${node:-$pod}
shift
if [ "$phase" != Running ]; then
  echo "$node: its pod $pod is $phase" >"$ANSWERS/$node.why"
  exit 0
fi
timeout --foreground "$PATIENCE" "$KUBECTL" exec -n kube-system "pod/$pod" -- reclaimd plan -o json "$@" \
  </dev/null >"$ANSWERS/$node.plan" 2>"$ANSWERS/$node.said"
code=$?
jq -c --arg node "$node" "$ROW" "$ANSWERS/$node.plan" >"$ANSWERS/$node.row" 2>/dev/null
[ ! -s "$ANSWERS/$node.row" ] || exit 0
why=$(grep -v "^command terminated" "$ANSWERS/$node.said" | tail -n 1)
[ "$code" != 124 ] || why="no answer within $PATIENCE"
echo "$node: ${why:-no plan, exit code $code}" >"$ANSWERS/$node.why"'
TABLE='
def amount: if . >= 1073741824 then "\(. / 107374182.4 | round / 10)GiB" else "\(. / 104857.6 | round / 10)MiB" end;
def cells:
  [
    .node,
    (.pressure | if . == "" then "-" else . end),
    (.available | if . then "\(.share * 100 | round)% \(.signal)" else "-" end),
    "\(.containers)", "\(.images)", (.bytes | amount),
    (.largest | if . then "\(.size // 0 | amount) \(.name)" else "-" end)
  ];
sort_by(.pressure == "", -.bytes, .node)
| [
    ["NODE", "UNDER PRESSURE", "AVAILABLE", "CONTAINERS", "IMAGES", "FREES", "LARGEST IMAGE"],
    (.[] | cells),
    ["\(length) nodes", "", "", (map(.containers), map(.images) | add // 0 | tostring), (map(.bytes) | add // 0 | amount), ""]
  ]
| (transpose | map(map(length) | max)) as $widths
| .[] | [., $widths] | transpose | map(.[0] + " " * (.[1] - (.[0] | length))) | join("  ") | sub(" +$"; "")'

pods=$("$KUBECTL" get pods -n kube-system -l app.kubernetes.io/name=reclaimd \
  -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.spec.nodeName}{"\n"}{end}') || exit 1
[ -n "$pods" ] || { echo "no pod of reclaimd in kube-system" >&2; exit 1; }
ANSWERS=$(mktemp -d) || exit 1
trap 'rm -rf "$ANSWERS"' EXIT
trap 'exit 1' INT TERM
echo "$pods" | xargs -P "${PARALLEL:-16}" -I '{}' sh -c "$ASK" plan.sh '{}' "$@"
find "$ANSWERS" -name '*.row' -exec cat '{}' + | jq -rs "$TABLE"
find "$ANSWERS" -name '*.why' -exec sort '{}' + | grep . >&2 && exit 1
exit 0
