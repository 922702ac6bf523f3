"""The Container Runtime Interface (CRI v1): a small client and the wire format."""
