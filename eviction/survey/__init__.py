"""Where the bytes of a filesystem are, and what it is."""
