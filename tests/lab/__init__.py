"""What measures and compares, and the tests of the tests' own tools; run with HOUSE=1, and where
their files have changed.

`bench`: what reclaimd costs, what each rule of the engine brings, what removals cost later.
`matrix`: a real kubelet alone, and with reclaimd beside it, under the same fill.
"""
