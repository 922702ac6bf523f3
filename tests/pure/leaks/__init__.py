"""What belongs to nobody, by one reading."""
