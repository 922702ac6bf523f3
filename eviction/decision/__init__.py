"""Which thresholds are met, which one is acted on, and by which functions: pure."""
