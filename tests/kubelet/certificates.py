"""A certificate authority in a directory, made with openssl: for the API server, the
kubelet and their clients.
"""

from __future__ import annotations

from pathlib import Path

from tests.real_node.loopfs import run_tool

DAYS = 2
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates for one cluster.

    `certificate`: the file that whoever trusts it has to read.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True)
        self._directory = directory
        self.certificate = directory / "ca.crt"
        self._key = directory / "ca.key"
        run_tool(
            "openssl", "req", "-x509", *KEY, "-keyout", self._key, "-out", self.certificate, "-days", str(DAYS),
            "-subj", "/CN=reclaimd-tests", "-addext", "basicConstraints=critical,CA:TRUE",
        )  # fmt: skip

    def sign(self, name: str, group: str = "", *, serves: bool = False) -> tuple[Path, Path]:
        """A certificate of this name (and group, an organisation) and its key: for a client, or for
        a server on 127.0.0.1."""
        stem = name.replace(":", "-")
        certificate, key, request = (
            self._directory / f"{stem}.{end}" for end in ("crt", "key", "csr")
        )
        subject = (f"/O={group}" if group else "") + f"/CN={name}"
        run_tool("openssl", "req", "-new", *KEY, "-keyout", key, "-out", request, "-subj", subject)
        usage = "extendedKeyUsage=" + ("serverAuth" if serves else "clientAuth")
        extensions = self._directory / f"{stem}.ext"
        extensions.write_text(
            usage + ("\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n" if serves else "\n")
        )
        run_tool(
            "openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
            "-CAcreateserial", "-out", certificate, "-days", str(DAYS), "-extfile", extensions,
        )  # fmt: skip
        return certificate, key

    def signing_key(self) -> tuple[Path, Path]:
        """A private and a public key for the tokens of service accounts."""
        private, public = self._directory / "tokens.key", self._directory / "tokens.pub"
        run_tool("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
        run_tool("openssl", "ec", "-in", private, "-pubout", "-out", public)
        return private, public
