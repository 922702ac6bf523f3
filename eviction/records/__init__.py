"""What happened, as values and files: passes, history, regret, the records of images."""
