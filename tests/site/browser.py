"""A headless Chromium of this machine, driven over a pipe by the Chrome DevTools Protocol.

Source: https://chromedevtools.github.io/devtools-protocol/; with `--remote-debugging-pipe` a
message is JSON, and a NUL ends it, on the descriptors 3 and 4. No name is resolved, so
nothing leaves the machine.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-headless-shell")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # which root must name
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-breakpad",
    "--no-first-run",
    "--hide-scrollbars",  # as on a phone, where they take no room
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
PATIENCE_SECONDS = 60.0
TO_IT, FROM_IT = 3, 4


def found() -> str | None:
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One process and its children. `directory` gets all that it writes."""

    def __init__(self, program: str, directory: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._read = b""
        (its_in, self._in), (self._out, its_out) = os.pipe(), os.pipe()
        # Above 4, so that neither is overwritten before it is copied.
        theirs = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (its_in, its_out)]

        def take() -> None:
            os.dup2(theirs[0], TO_IT)
            os.dup2(theirs[1], FROM_IT)

        places = {
            name: str(directory) for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        }
        with open(directory / "chromium.log", "wb") as log:
            self._process = subprocess.Popen(
                [program, *OPTIONS, f"--user-data-dir={directory}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                close_fds=False,
                preexec_fn=take,
                start_new_session=True,
                env={**os.environ, **places},
            )
        for descriptor in (its_in, its_out, *theirs):
            os.close(descriptor)

    def call(self, method: str, session: str = "", **parameters: object) -> Any:
        """The answer to a call; events that come before it are kept.

        AssertionError for an error.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._in,
            json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0",
        )
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, f"{method}: {told['error']}"
                return told["result"]
            self.events.append(told)

    def wait_for(self, method: str) -> None:
        """Until this event has come; it, and those before it, stay in `events`."""
        while all(event["method"] != method for event in self.events):
            self.events.append(self._next())

    def close(self) -> None:
        """Ends it, and whatever of it has not ended."""
        with suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._in)
            os.close(self._out)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0.0))
            assert ready, "the browser does not answer"
            more = os.read(self._out, 1 << 16)
            assert more, "the browser has ended"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told


class Tab:
    """One page. `scheme`: the reader's preference, light or dark."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        # as if its window were in front
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)

    def show(self, file: Path, width: int, scheme: str) -> None:
        """Loads a file at a width in pixels."""
        self._browser.events.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self._call("Page.navigate", url=file.as_uri())
        self._browser.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        told = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key, down and up. `code`: Windows' virtual key code, which the protocol asks for."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self._call("Input.dispatchKeyEvent", type="keyUp", **named)

    def picture(self, file: Path) -> None:
        """Writes the whole page as PNG."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        data = self._call(
            "Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1}
        )["data"]
        file.write_bytes(base64.b64decode(data))

    def requests(self) -> list[str]:
        """What was asked for since it was shown."""
        return [each["request"]["url"] for each in self._told("Network.requestWillBeSent")]

    def complaints(self) -> list[Any]:
        """What the console says, and exceptions, since it was shown."""
        names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [each for name in names for each in self._told(name)]

    def _told(self, method: str) -> list[Any]:
        self._call("Runtime.evaluate", expression="0")  # whatever came before has come
        return [event["params"] for event in self._browser.events if event["method"] == method]

    def _call(self, method: str, **parameters: object) -> Any:
        return self._browser.call(method, self._session, **parameters)


@contextmanager
def browsing(program: str, directory: Path) -> Iterator[Tab]:
    """A page of a browser of its own, while the `with` block lasts."""
    browser = Browser(program, directory)
    try:
        yield Tab(browser)
    finally:
        browser.close()
