"""The daemon: its loop, and what runs beside it."""
