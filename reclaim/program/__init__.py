"""A user's own program as a reclaim function, and the process that runs it."""
