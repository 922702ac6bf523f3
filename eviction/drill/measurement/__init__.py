"""Measurements of a drill, taken by the drill itself and independent of the component that relieves the node."""
