"""Tests and measurements beside a real kubelet, API server and containerd, all on loopback."""
