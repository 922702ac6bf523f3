"""Ring 3: a real containerd on a real small filesystem."""
