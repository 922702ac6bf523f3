"""Dead containers, sandboxes and pod logs: which may be removed. Pure."""
