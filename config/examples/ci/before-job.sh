#!/bin/sh
# A hook before each job of a CI fleet: makes room for the job, which does not start if there is too little.
#   GitHub Actions runner:  ACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/reclaimd/before-job.sh
#   GitLab runner:          pre_get_sources_script = "/opt/reclaimd/before-job.sh"     (config.toml, shell executor)
#   Jenkins agent, Buildkite (hooks/environment), cron: run it
# RECLAIMD_ROOM: how much must be available for images: a quantity, or a percentage of the disk. List base images that
# every job needs in keepImages, or they are pulled again and again. Images that jobs built or imported here, and that
# pods used, go last.
reclaimd=${RECLAIMD:-/opt/reclaimd/bin/reclaimd}
room=${RECLAIMD_ROOM:-25%}
"$reclaimd" reclaim --room "$room" --on imagefs "$@"
code=$?
case $code in
  0) exit 0 ;;
  1) echo "less than $room is available for images, and no more can be removed: see reclaimd plan" >&2 ;;
  *) echo "reclaimd exited with $code: could not make room for the job" >&2 ;;
esac
exit 1
