"""Which pods exist, and which of them have terminated."""
