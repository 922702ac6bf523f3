"""Reclaims disk space: from the container runtime's lists to removals. Never sees a signal."""
