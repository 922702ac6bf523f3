"""The ballast: its settings, its plan, when it is made again."""
