"""`python -m tests.faults.matrix`: prints the rows of the fault matrix, and why the
other cells cannot exist.
"""

from __future__ import annotations

from tests.faults.matrix.rows import Row
from tests.faults.matrix.table import IMPOSSIBLE, TABLE


def line(row: Row) -> str:
    """One row as text."""
    where = "test" if row.in_suite else "soak"
    reason = f"  ({row.relief.reason})" if row.relief.reason else ""
    return f"{row.id:42} {where:5} /livez {row.livez:11} relief {row.relief}{reason}"


if __name__ == "__main__":
    print("\n".join(line(row) for row in TABLE))
    print(
        "\n".join(
            f"{resource}-{fault:16} cannot exist: {why}"
            for (resource, fault), why in IMPOSSIBLE.items()
        )
    )
    print(f"{len(TABLE)} rows, {sum(row.in_suite for row in TABLE)} in make test")
