"""What fills the filesystems during a drill, and the faults that are injected meanwhile."""
