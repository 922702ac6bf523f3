"""The clients of listening sockets."""
