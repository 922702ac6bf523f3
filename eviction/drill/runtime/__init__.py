"""The embedded CRI runtime: in this process, with real files on small real filesystems."""
