"""The test of eviction paths: a scenario, its run, its report."""
