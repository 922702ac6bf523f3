"""The reclaim functions that a row can call, one module each; `table` has all of them."""
