"""XFS gives back what it has allocated ahead of files that grow: the helper that may ask it, and its client."""
