"""For each resource of the fault matrix, what makes it fail. `registry` has them all."""
