"""Pure tests of decision."""
