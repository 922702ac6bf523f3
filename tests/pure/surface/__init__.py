"""What others see of a daemon."""
