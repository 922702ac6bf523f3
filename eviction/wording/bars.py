"""A filesystem as a bar on which marks stand, and how it was lately, in characters."""

from collections.abc import Mapping, Sequence

WIDTH = 20
EIGHTHS = ("", *"▏▎▍▌▋▊▉")
HEIGHTS = "▁▂▃▄▅▆▇█"
SIGNS = {"reclaimd": "│", "kubelet": "┃"}
LEAST_SPAN = 0.01  # of the filesystem: what moves less is shown flat


def bar(available: int, capacity: int, marks: Mapping[str, int]) -> str:
    """What is used, from the left, and whose mark stands where, by what is available there.

    Of two in one place, the one that is reached first moves to the left.
    """
    cell = max(capacity, 1) / WIDTH
    whole, eighths = divmod(int((capacity - available) / cell * 8), 8)
    cells = list(f"{'█' * whole}{EIGHTHS[eighths]}".ljust(WIDTH, "·"))
    place = WIDTH
    for whose in sorted(marks, key=marks.__getitem__):
        place = max(min(int((capacity - marks[whose]) / cell), place - 1), 0)
        cells[place] = SIGNS[whose]
    return "".join(cells)


def sparkline(amounts: Sequence[int], capacity: int) -> str:
    """Amounts of a filesystem, each as high as it is between the least and the largest of them."""
    least = min(amounts)
    span = max(max(amounts) - least, capacity * LEAST_SPAN, 1)
    return "".join(HEIGHTS[int((amount - least) / span * 7)] for amount in amounts)
