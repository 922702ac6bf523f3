"""OBSERVE: from filesystems to the kubelet's disk pressure signals. Imports nothing else of this project."""
