"""Something that goes on beside a test, on a thread of its own."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Calls `_run` on a thread while its `with` block lasts; `_run` returns when `_over` is set."""

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """What goes on."""
