"""The daemon: its loop, and the threads that run beside it."""
