"""The only loop, and what runs beside it."""
