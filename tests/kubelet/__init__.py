"""Tests and measurements beside a real kubelet, API server and container
runtime, all on loopback.
"""
