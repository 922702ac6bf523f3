"""The Container Runtime Interface (CRI v1): our own small client and the wire format."""
