#!/bin/sh
# A hook before each job of a CI fleet: room for the job is made now, and a job for which there is none does not begin.
#   GitHub Actions runner:  ACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/reclaimd/before-job.sh
#   GitLab runner:          pre_get_sources_script = "/opt/reclaimd/before-job.sh"     (config.toml, shell executor)
#   Jenkins agent, Buildkite (hooks/environment), cron: run it
# RECLAIMD_ROOM: what must be available to images, a quantity or a percentage. Base images that every job needs belong
# into keepImages, or they are pulled again and again.
reclaimd=${RECLAIMD:-/opt/reclaimd/bin/reclaimd}
room=${RECLAIMD_ROOM:-25%}
"$reclaimd" reclaim --signal imagefs.available --until "$room" "$@"
code=$?
case $code in
  0) exit 0 ;;
  1) echo "less than $room is available for images, and no more can be removed: see reclaimd plan" >&2 ;;
  *) echo "reclaimd ended with $code: room for the job could not be made" >&2 ;;
esac
exit 1
