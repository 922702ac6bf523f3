"""What is wrong or risky on this node, and what to do about it."""
