"""What removals cost later: a simulator of nodes that compares orders in which images are removed.

`workloads` makes traces: the starts of containers on a node, and the images and layers that they
need. `node` replays one on a disk, under a policy of `policies`, beside a kubelet. `page` makes
the table and the picture.
"""
