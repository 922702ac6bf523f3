"""What people and programs read of the node and of a pass. Decides nothing."""
