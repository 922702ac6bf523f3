"""Reads filesystems and reports the kubelet's disk pressure signals.

Imports nothing else from this project.
"""
