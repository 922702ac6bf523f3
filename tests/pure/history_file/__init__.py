"""The history file."""
