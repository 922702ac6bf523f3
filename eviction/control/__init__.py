"""The control socket, and the requests that commands send over it to the running daemon."""
