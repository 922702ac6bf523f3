"""Random input for everything that reads text from outside. `make fuzz` runs it; `make test` does not."""
