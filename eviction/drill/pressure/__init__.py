"""What fills the filesystems during a drill."""
