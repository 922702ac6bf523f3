"""Dead containers and pod sandboxes: which go, and how one is removed."""
