"""What is containerd's own, beside CRI: its garbage collection, when it is asked for it."""
