"""The kubelet as a peer."""
