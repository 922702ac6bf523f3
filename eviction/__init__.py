"""DECIDE, and run: joins what `signals` observes and what `reclaim` can do."""
