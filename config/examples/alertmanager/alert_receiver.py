"""An alert receiver's command: one request of an Alertmanager on stdin, one pass of
reclaimd, the answer on stdout.

systemd listens and starts it for each connection (`reclaimd-alert.socket`,
`reclaimd-alert@.service`):

    alert_receiver.py --node NAME --token-file FILE -- COMMAND...

The command runs if the request has the token and a firing alert about this node: one whose label
`node`, or `instance` without its port, is NAME. No part of the request ends up in the command.
The answer is 503, after which Alertmanager tries again, if the runtime or a filesystem did not
answer; otherwise it is 200.
"""

from __future__ import annotations

import argparse
import hmac
import json
import signal
import subprocess
import sys
from email.parser import BytesHeaderParser
from typing import BinaryIO

LONGEST_HEAD_BYTES = 16 * 1024
LONGEST_BODY_BYTES = 1024 * 1024
REQUEST_SECONDS = 10  # for the whole request; then SIGALRM ends the process
TRY_AGAIN = (3, 4)  # runtime unreachable, reading unavailable


def respond(stream: BinaryIO, node: str, token: str, *, command: list[str]) -> tuple[int, str]:
    """Status and text of the answer to the request in the stream."""
    signal.alarm(REQUEST_SECONDS)
    head = b""
    while not head.endswith((b"\r\n\r\n", b"\n\n")):
        line = stream.readline(LONGEST_HEAD_BYTES)
        head += line
        if not line or len(head) > LONGEST_HEAD_BYTES:
            return 400, "not an HTTP request"
    request, _, rest = head.partition(b"\n")
    headers = BytesHeaderParser().parsebytes(rest)
    if not hmac.compare_digest(
        headers.get("Authorization", "").encode(), f"Bearer {token}".encode()
    ):
        return 401, "the token is missing or wrong"
    length = headers.get("Content-Length", "")
    if not request.startswith(b"POST ") or not length.isascii() or not length.isdigit():
        return 400, "a POST with a Content-Length is expected"
    if int(length) > LONGEST_BODY_BYTES:
        return 413, "too large"
    try:
        concerned = about(json.loads(stream.read(int(length))), node)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return 400, "not a webhook of an Alertmanager"
    signal.alarm(0)
    if not concerned:
        return 200, f"no alert fires about {node}"
    code = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    ).returncode
    return (503 if code in TRY_AGAIN else 200), f"{command[0]} ended with {code}"


def about(webhook: dict[str, list[dict[str, dict[str, str]]]], node: str) -> bool:
    """Whether an alert of the webhook (version 4) fires about the node."""
    for alert in webhook["alerts"]:
        labels = alert["labels"]
        names = {
            labels.get("node"),
            labels.get("instance"),
            labels.get("instance", "").rpartition(":")[0],
        }
        if alert["status"] == "firing" and node in names:
            return True
    return False


def main() -> None:
    """Answers one request."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--node", required=True)
    parser.add_argument("--token-file", required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    with open(arguments.token_file, encoding="ascii") as file:
        token = file.read().strip()
    if not token:
        sys.exit("the token file is empty")
    status, text = respond(sys.stdin.buffer, arguments.node, token, command=arguments.command)
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status} \r\nContent-Type: text/plain\r\nContent-Length:"
        f" {len(body)}\r\nConnection: close\r\n\r\n"
    )
    sys.stdout.buffer.write(head.encode() + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
