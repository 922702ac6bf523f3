"""Ring 4: budgets of start-up, memory and stalls."""
