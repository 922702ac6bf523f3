"""`make bench`: measures side by side, in one run, on one machine. Not collected by pytest.

The figures in tests/README.md come from here, with the class of the machine and the date.
"""
