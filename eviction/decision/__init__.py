"""Which thresholds are met, which one is acted on, and which functions are called."""
