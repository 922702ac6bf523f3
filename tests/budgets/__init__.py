"""Ring budgets: limits of start-up, memory and imports."""
