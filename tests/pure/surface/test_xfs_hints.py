"""Which directories get an extent size hint where none is named, and how its size is written."""

from __future__ import annotations

import pytest

from eviction.cli.xfs_hint import read_size
from eviction.configuration.effective import ConfigurationError, load
from eviction.surface.xfs_hints import usual_directories


@pytest.mark.parametrize(
    ("containerfs", "layers"),
    [
        (
            "/c/io.containerd.snapshotter.v1.overlayfs",
            ["/c/io.containerd.snapshotter.v1.overlayfs/snapshots"],
        ),
        ("/storage/overlay-images", ["/storage/overlay"]),  # CRI-O
        ("/storage/overlay-containers", ["/storage/overlay"]),  # with images elsewhere
        ("/var/lib/docker", []),
        (None, []),  # the runtime has not answered
    ],
)
def test_of_the_runtime_it_is_the_directory_in_which_layers_are_made(
    containerfs: str | None, layers: list[str]
) -> None:
    """Beside the kubelet's, which get it anyway."""
    kubelets = ["/k/pods", "/l"]
    configuration = load(None, {}, {"rootDirectory": "/k", "podLogsDir": "/l"})
    assert usual_directories(configuration, containerfs) == [*kubelets, *layers]


def test_a_size_is_written_as_for_mkfs_or_as_in_the_file() -> None:
    """A thousandth of a byte, as `1m` is in a file, is not meant, and not allowed there."""
    assert [*map(read_size, ("1m", "64k", "1g", "1Mi"))] == [1 << 20, 64 << 10, 1 << 30, 1 << 20]
    with pytest.raises(ValueError, match="must be between 4Ki and 1Gi, but it was '2Gi'"):
        read_size("2g")
    file = load(None, {}, {"xfsExtentSizeHint": "1Mi"})
    assert file.xfs_extent_size_hint_bytes == 1 << 20
    with pytest.raises(ConfigurationError, match="xfsExtentSizeHint: must be between 4Ki and 1Gi"):
        load(None, {}, {"xfsExtentSizeHint": "1m"})
