"""`reclaimd resume`: ends a pause."""

from eviction.cli.pause import run as run  # without a length
