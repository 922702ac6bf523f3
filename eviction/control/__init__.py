"""The control socket, and the requests that commands send to the running daemon over it."""
