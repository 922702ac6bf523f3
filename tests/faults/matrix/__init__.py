"""The fault matrix: every resource that reclaimd relies on, times every way in which
it can fail, one row each.

* `matrix.yaml`: all rows, and why the other cells cannot exist. `table`: the same as values.
* `injectors`: for each resource what makes it fail, for real.
* `node`: a node that fills again and again (`populated` says what must stay on it), the daemon on
  it, and who asks for `/livez`.
* `bench`: runs the daemon under one row's fault. `judge`: whether the row held.
"""
