"""Where the bytes are."""
