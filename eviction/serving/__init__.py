"""What the HTTP pages and the control socket share: many clients, read on one thread."""
