"""What others see of a daemon: log, metrics, health, events, systemd, the control socket."""
