"""A daemon from outside."""
