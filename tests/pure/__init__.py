"""Ring 1: pure tables and properties."""
