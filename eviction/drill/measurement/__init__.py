"""A drill's own measurements, independent of the component that relieves the node."""
