"""Ring real_node: a real containerd on a real small filesystem."""
