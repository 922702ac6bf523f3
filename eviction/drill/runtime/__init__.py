"""The embedded CRI runtime: it runs in this process, and its layers are real files
on a small real filesystem.
"""
