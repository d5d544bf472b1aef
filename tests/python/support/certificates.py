"""Certificates of one test, made and served by OpenSSL."""

import ssl
import subprocess
from pathlib import Path


class Pki:
    """A directory with an authority `ca.pem` and the pairs that it issued."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = self.path("ca.pem")
        _openssl(
            "req", "-x509", *_KEY, "-subj", "/CN=test ca", "-days", "2",
            "-keyout", self.path("ca.key"), "-out", self.ca,
        )  # fmt: skip

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def issue(self, file: str, name: str, san: str, *, days: int = 30) -> tuple[str, str]:
        """The files of a certificate for `name`, and of its key."""
        cert, key = self.path(f"{file}.pem"), self.path(f"{file}.key")
        extensions = self.path(f"{file}.ext")
        Path(extensions).write_text(f"subjectAltName={san}\n")
        request = self.path(f"{file}.csr")
        _openssl("req", *_KEY, "-subj", f"/O=Example/CN={name}", "-keyout", key, "-out", request)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.path("ca.key"),
            "-days", str(days), "-extfile", extensions, "-out", cert,
        )  # fmt: skip
        return cert, key

    def client(self, version: ssl.TLSVersion, own: tuple[str, str] | None = None) -> ssl.SSLContext:
        """A client of OpenSSL that speaks this version only and trusts the authority."""
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = context.maximum_version = version
        if own:
            context.load_cert_chain(*own)
        return context

    def server(
        self, version: ssl.TLSVersion, own: tuple[str, str], *, asks: bool = False
    ) -> ssl.SSLContext:
        """A server of OpenSSL that speaks this version only; it may ask for certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(*own)
        if asks:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)
