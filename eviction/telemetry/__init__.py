"""Metrics, health, systemd and Kubernetes events."""
