"""What fills a filesystem, and the faults that strike meanwhile."""
