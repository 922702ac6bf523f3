"""The engine, told as stories: from an observation to the record of a pass, on a
clock that is set forward.
"""
