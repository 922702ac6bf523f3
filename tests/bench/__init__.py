"""`make bench`: measures side by side, in one run, on one machine. Not collected by pytest.

What is written into the README comes from here, with the class of the machine and the date.
"""
