"""The kubelet as a peer: its versions, its pods, its records of pulls, and the ways to ask it."""
