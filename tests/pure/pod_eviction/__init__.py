"""Pure tests of whom the kubelet would evict."""
