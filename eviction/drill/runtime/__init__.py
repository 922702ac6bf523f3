"""A CRI runtime in this process whose layers are real files on a real small filesystem."""
