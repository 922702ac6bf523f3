"""Whom the kubelet would evict for disk, in its order. Pure: what the kubelet answers goes in, a ranking comes out."""
