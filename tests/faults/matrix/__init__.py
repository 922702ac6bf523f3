"""The fault matrix: every resource that reclaimd relies on, times every way in which
it can fail, one row each.

* `rows`: what a row is. `table`: all rows, and why the other cells cannot exist.
* `injectors`: for each resource what makes it fail, for real.
* `node` and `pressure`: a small node that fills again and again; what may go
  on it, and what must stay.
* `bench`: runs the program under one row's fault. `judge`: whether the row held.
* `python -m tests.faults.matrix` prints the table.
"""
