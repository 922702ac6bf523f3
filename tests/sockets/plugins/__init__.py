"""Reclaim functions of other distributions, installed for real and called on real small filesystems."""
