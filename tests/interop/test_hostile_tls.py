"""TLS: the wrong protocol on a port, certificates that do not hold, handshakes that never end.

Each is named on the receiver's side and on the sender's; nobody else is disturbed.
"""

import datetime as dt
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogbeat
import pytest
import trustme
import wire
from conftest import Tls, issue, until
from wire import json_frame, window

from ackline import exceptions, lumberjack

Receive = Callable[..., Any]
CONTROL = "\x1b[31mevil\r\n2026 ERROR forged\x07\x00" + "\u202e"


def context(tls: Tls, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(tls.ca))
    if cert is not None:
        made.load_cert_chain(str(cert), str(key))
    return made


def served(port: int, tls: Tls, **own: str) -> None:
    with pylogbeat.PyLogBeatClient(
        "127.0.0.1", port, timeout=20, ssl_enable=True, ca_certs=str(tls.ca), **own
    ) as client:
        client.send([{"served": True}])


def own(tls: Tls) -> dict[str, str]:
    return {"certfile": str(tls.client_cert), "keyfile": str(tls.client_key)}


def failure_of(url: str) -> str:
    """Our writer's words for a receiver that does not take its events."""
    try:
        with lumberjack.connect(url) as writer:
            writer.send([b"{}"], timeout=5)
    except (exceptions.AcklineError, OSError) as error:
        return str(error)
    pytest.fail("the event was acknowledged")


def sent_over(peer: socket.socket, made: ssl.SSLContext) -> bytes:
    """Send an event; return its ack, or nothing where the receiver does not want it."""
    try:
        # Under TLS 1.3 the client learns of its certificate when it reads.
        with made.wrap_socket(peer, server_hostname="localhost") as secure:
            secure.sendall(window(1) + json_frame(1))
            return secure.recv(6)
    except (ssl.SSLError, ConnectionError):
        return b""


def refused(receiver: Any, port: int) -> dict[str, Any]:
    """The line that names the connection from this port."""
    name = f"127.0.0.1:{port}"
    line: dict[str, Any] = receiver.wait("refused", lambda line: line["peer"] == name)
    return line


def test_plain_bytes_on_a_port_of_tls_are_named_on_both_sides(receive: Receive, tls: Tls) -> None:
    receiver = receive("--discard", url=tls.listen_url())
    for sent in (window(1) + json_frame(1), b"GET / HTTP/1.1\r\n\r\n", b"1W\0\0\0\1"):
        with wire.connect(receiver.port) as peer:
            peer.sendall(sent)
            wire.until_closed(peer)
            line = refused(receiver, peer.getsockname()[1])
        assert line["code"] == "tls.plaintext"
        assert line["message"]
    assert "TLS" in failure_of(f"lumberjack://127.0.0.1:{receiver.port}")
    served(receiver.port, tls)


def test_a_handshake_of_tls_on_a_plain_port_is_named_on_both_sides(
    receive: Receive, tls: Tls
) -> None:
    receiver = receive("--discard")
    with wire.connect(receiver.port) as peer:
        assert sent_over(peer, context(tls)) == b""
    assert receiver.wait("refused")["code"] == "tls.unexpected"
    assert "TLS" in failure_of(f"lumberjack+tls://localhost:{receiver.port}?ca={tls.ca}")


@pytest.mark.parametrize("who", ["nobody", "a stranger", "expired"])
def test_a_client_certificate_that_does_not_hold(
    receive: Receive, tls: Tls, authority: trustme.CA, tmp_path: Path, who: str
) -> None:
    receiver = receive("--discard", url=tls.listen_url(ca=tls.ca, client_auth="required"))
    cert, key = None, None
    if who == "a stranger":
        cert, key = issue(trustme.CA(), tmp_path, "stranger", names=("beat.example",))
    elif who == "expired":
        yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        cert, key = issue(
            authority, tmp_path, "expired", names=("beat.example",), not_after=yesterday
        )
    with wire.connect(receiver.port) as peer:
        port = peer.getsockname()[1]
        assert sent_over(peer, context(tls, cert, key)) == b""
    assert refused(receiver, port)["code"] == "tls.certificate"
    served(receiver.port, tls, **own(tls))


@pytest.mark.parametrize("which", ["another name", "wildcard", "expired", "another authority"])
def test_a_server_certificate_that_does_not_hold(
    receive: Receive, tls: Tls, authority: trustme.CA, tmp_path: Path, which: str
) -> None:
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    cert, key = {
        "another name": lambda: issue(authority, tmp_path, "s", names=("elsewhere.example",)),
        "wildcard": lambda: issue(authority, tmp_path, "s", names=("*.localhost",)),
        "expired": lambda: issue(
            authority, tmp_path, "s", names=("localhost",), not_after=yesterday
        ),
        "another authority": lambda: issue(trustme.CA(), tmp_path, "s", names=("localhost",)),
    }[which]()
    receiver = receive("--discard", url=tls.listen_url(cert=cert, key=key))
    said = failure_of(f"lumberjack+tls://localhost:{receiver.port}?ca={tls.ca}")
    assert "certificate" in said
    # The receiver tells the alert that it got.
    assert receiver.wait("refused")["code"] in ("tls.certificate", "tls.handshake")


def test_a_hello_in_pieces_and_ends_in_the_middle(receive: Receive, tls: Tls) -> None:
    receiver = receive("--discard", url=tls.listen_url())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secure = context(tls).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        secure.do_handshake()
    hello = outgoing.read()
    with wire.connect(receiver.port) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in hello:
            peer.sendall(bytes([byte]))
        while True:
            incoming.write(peer.recv(65536))
            try:
                secure.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.sendall(outgoing.read())
        # The end right behind the handshake, said in order.
        with pytest.raises(ssl.SSLError):
            secure.unwrap()
        peer.sendall(outgoing.read())
        peer.shutdown(socket.SHUT_WR)
        wire.until_closed(peer)
    for cut in (1, 5, 6, 100, len(hello) - 1, len(hello)):
        with wire.connect(receiver.port) as peer:
            peer.sendall(hello[:cut])
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    served(receiver.port, tls)
    until(lambda: receiver.newer_stats()["connections"] == 0, "all are gone")
    assert receiver.stop() == 0


@pytest.mark.alone
def test_handshakes_that_never_end_cost_little_and_are_closed(receive: Receive, tls: Tls) -> None:
    receiver = receive(
        "--discard", "--handshake-timeout", "5", url=tls.listen_url(), memory=16 << 20
    )
    # A record of 16 KiB is announced, and a few bytes of it come.
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(20)
    started = time.monotonic()
    peers = [wire.connect(receiver.port) for _ in range(300)]
    for peer in peers:
        peer.sendall(hello)
    served(receiver.port, tls)
    for peer in peers:
        wire.until_closed(peer)
        peer.close()
    assert time.monotonic() - started < 60
    assert receiver.wait("refused")["code"] == "tls.timeout"
    until(lambda: receiver.newer_stats()["connections"] == 0, "all are gone")


def test_control_characters_of_a_certificate_reach_no_log_and_no_terminal(
    receive: Receive,
    spool: Path,
    events_of: Callable[[Path], list[dict[str, Any]]],
    tls: Tls,
    authority: trustme.CA,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    cert, key = issue(
        authority, tmp_path, "evil",
        names=("beat.example",), common_name=CONTROL, organization_name="../../etc/passwd",
    )  # fmt: skip
    url = tls.listen_url(ca=tls.ca, client_auth="required")
    receiver = receive("--spool", str(spool), url=url)
    served(receiver.port, tls, certfile=str(cert), keyfile=str(key))
    # The same identity breaks a rule, and is named in a line.
    with wire.connect(receiver.port) as peer:
        secure = context(tls, cert, key).wrap_socket(peer, server_hostname="localhost")
        secure.sendall(b"2Z\0\0\0\1")
        wire.until_closed(secure)
        secure.close()
    assert receiver.wait("refused")["code"] == "lumberjack.unknown_frame_type"
    (event,) = events_of(spool)
    subject = event["attributes"]["tls.subject"]
    assert "evil" in subject
    assert event["attributes"]["tls.san"] == "DNS:beat.example"
    assert receiver.stop() == 0
    shown = capfd.readouterr().err + json.dumps(receiver.lines, ensure_ascii=False) + subject
    assert not [one for one in shown if one in "\x1b\r\x07\x00\u202e"]
    assert not any(line.startswith("2026 ERROR forged") for line in shown.splitlines())
