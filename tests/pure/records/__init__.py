"""What happened, as values and files."""
