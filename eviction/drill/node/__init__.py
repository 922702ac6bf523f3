"""The node on which a drill runs: a small real filesystem, a runtime, images and pods."""
