"""Log directories of pods that no longer exist, and log symlinks whose target does not exist."""
