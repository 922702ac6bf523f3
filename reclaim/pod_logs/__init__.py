"""Log directories of pods that are gone, and log symlinks that lead nowhere."""
