"""Pure tests of what XFS gives back."""
