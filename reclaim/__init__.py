"""ACT: from lists of the container runtime to removals. Imports nothing else of ours and never sees a signal."""
