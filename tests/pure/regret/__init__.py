"""Pure tests of the simulator of what removals cost later."""
