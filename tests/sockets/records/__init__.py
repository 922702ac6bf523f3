"""What happened, in files."""
