"""What a command asks of the running daemon."""
