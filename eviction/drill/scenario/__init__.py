"""A scenario: its types, its strict reader, and those that come with the program."""
