"""One thread owns the state of a node: what happens is folded into a value, and
what follows is handed out.
"""
