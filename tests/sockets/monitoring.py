"""A real Prometheus and a real Alertmanager from Debian, each on a port of its own."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.ports import free_port
from tests.reclaimd_process import came_true
from tests.tool import tool


class Monitor:
    """A program of Debian's package of the same name, which logs into a directory and is ended with
    the block."""

    def __init__(self, name: str, directory: Path, *options: str):
        self._address = f"127.0.0.1:{free_port()}"
        command = [tool(name, name), *options, f"--web.listen-address={self._address}"]
        self._log = (directory / f"{name}.log").open("w")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def __enter__(self) -> Self:
        assert came_true(self.works), "it does not start"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(60.0)
        self._log.close()

    def works(self) -> bool:
        """Whether it has begun to."""
        return self.answer("/-/ready") is not None

    def answer(self, path: str, body: object = None) -> bytes | None:
        """To a GET, or with a body to a POST; None while it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self._address}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60.0) as answer:  # noqa: S310 # loopback
                found: bytes = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                return None
            raise AssertionError(f"{path}: {error.read().decode()}") from None
        except OSError:
            return None
        return found


class Prometheus(Monitor):
    """Scrapes one address every half second, and evaluates the rules of a file as often."""

    def __init__(self, directory: Path, target: str, rules: Path):
        often = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        scraped = {"job_name": "reclaimd", "static_configs": [{"targets": [target]}]}
        configuration = {"global": often, "scrape_configs": [scraped], "rule_files": [str(rules)]}
        file = directory / "prometheus.yml"
        file.write_text(json.dumps(configuration))
        options = (f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}")
        super().__init__("prometheus", directory, *options)

    def works(self) -> bool:
        return bool(self.query("up == 1"))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current result of an expression; empty while Prometheus does not answer.

        Fails for a bad expression.
        """
        asked = urllib.parse.urlencode({"query": expression})
        document = json.loads(self.answer(f"/api/v1/query?{asked}") or '{"data": {"result": []}}')
        found: list[dict[str, Any]] = document["data"]["result"]
        return found


class Alertmanager(Monitor):
    """Runs with a configuration file; `fire` sends it alerts as Prometheus does."""

    def __init__(self, directory: Path, configuration: Path):
        options = (f"--config.file={configuration}", f"--storage.path={directory / 'data'}")
        super().__init__(
            "prometheus-alertmanager", directory, *options, "--cluster.listen-address="
        )

    def fire(self, **labels: str) -> None:
        """An alert that fires from now on."""
        assert self.answer("/api/v2/alerts", [{"labels": labels}]) is not None
