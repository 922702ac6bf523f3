"""The whole daemon in one simulated world: a seed is a schedule that can be repeated."""
