"""A hundred thousand inputs for everything that reads text; only with `make fuzz`."""
