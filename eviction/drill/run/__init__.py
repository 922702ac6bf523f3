"""Runs a scenario on an embedded node or on a real one."""
