"""Faults: a runtime, a filesystem and a machine that misbehave, and what the product does then."""
