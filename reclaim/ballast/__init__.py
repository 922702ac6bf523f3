"""Ballast: a file that takes space for nothing, so that there is something to give up when the disk is full."""
