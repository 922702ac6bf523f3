"""What is wrong or risky on this node, each with what to do."""
