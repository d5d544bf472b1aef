"""Our writer sends to servers that others wrote; each event is compared byte for byte.

go-lumber acknowledges by count, Camel only a window whose last number is its size, ferro the last
number: windows that run from 1 to n are right for all of them.
"""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import peers
import pytest
from conftest import CORPUS, Peer, Tls, free_port

from ackline import lumberjack

BOTH = pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
Serve = Callable[..., Peer]


def url_of(peer: Peer, tls: Tls, *, secure: bool) -> str:
    if secure:
        return f"lumberjack+tls://localhost:{peer.port}?ca={tls.ca}"
    return f"lumberjack://127.0.0.1:{peer.port}"


def golumber(serve: Serve, tls: Tls, *, secure: bool) -> tuple[Peer, str]:
    """go-lumber's server and its URL."""
    own = ["-cert", str(tls.cert), "-key", str(tls.key)] if secure else []
    peer = serve([*peers.golumber_command(), "-listen", "127.0.0.1:0", *own])
    return peer, url_of(peer, tls, secure=secure)


@BOTH
@pytest.mark.parametrize("compression", [0, 3])
def test_go_lumber_v2(serve: Serve, tls: Tls, compression: int, *, secure: bool) -> None:
    peer, url = golumber(serve, tls, secure=secure)
    with lumberjack.connect(url, compression=compression, batch_events=17) as writer:
        writer.send(CORPUS, timeout=30)
    assert [base64.b64decode(line).decode() for line in peer.take(len(CORPUS))] == CORPUS


@BOTH
def test_go_lumber_v1_with_pairs(serve: Serve, tls: Tls, *, secure: bool) -> None:
    peer, url = golumber(serve, tls, secure=secure)
    sent = [{"line": f"ä \x01\x7f {n}", "ключ": "x" * n} for n in range(300)]
    with lumberjack.connect(url, version=1, batch_events=100) as writer:
        writer.send([list(each.items()) for each in sent], timeout=30)
    assert [json.loads(line) for line in peer.take(len(sent))] == sent


@BOTH
@pytest.mark.parametrize("compression", [0, 9])
def test_ferro_lumberjack(serve: Serve, tls: Tls, compression: int, *, secure: bool) -> None:
    own = [str(tls.cert), str(tls.key)] if secure else []
    peer = serve([*peers.ferro_command(), "listen", "127.0.0.1:0", *own])
    with lumberjack.connect(
        url_of(peer, tls, secure=secure), compression=compression, batch_events=50
    ) as writer:
        writer.send(CORPUS, timeout=30)
    assert [bytes.fromhex(line).decode() for line in peer.take(len(CORPUS))] == CORPUS


def pkcs12(tls: Tls, file: Path) -> list[str]:
    """The server's certificate and key as Java takes them, and their password."""
    password = "changeit"
    pair = ("-in", tls.cert, "-inkey", tls.key)
    subprocess.run(
        ["openssl", "pkcs12", "-export", *pair, "-out", file, "-passout", f"pass:{password}"],
        check=True,
        timeout=30,
    )
    return [str(file), password]


@BOTH
@pytest.mark.parametrize("compression", [0, 3])
def test_camel(serve: Serve, tls: Tls, tmp_path: Path, compression: int, *, secure: bool) -> None:
    own = pkcs12(tls, tmp_path / "server.p12") if secure else []
    peer = serve(peers.camel_command(str(free_port()), *own), 60.0)
    with lumberjack.connect(
        url_of(peer, tls, secure=secure), compression=compression, batch_events=30
    ) as writer:
        writer.send(CORPUS, timeout=60)
    # Camel hands parsed values on: values are compared.
    assert [json.loads(line) for line in peer.take(len(CORPUS))] == [
        json.loads(line) for line in CORPUS
    ]
