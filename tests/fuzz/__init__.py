"""A hundred thousand inputs for everything that reads text; only when asked for (`make fuzz`)."""
