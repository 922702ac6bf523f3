"""The ballast on real files, and on small nodes."""
