"""Repeats are marked by the sender's identity and the end of its previous connection."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import ackline as command
from support.commands import address, deliver_and_reset, wait_until, window

from ackline import Receiver, Spool, lumberjack

URL = "lumberjack+tls://127.0.0.1:0"
# A stretch: a resend after an end in order is recognised from 16 events on.
SAME = [b'{"same":%d}' % number for number in range(20)]
TICK = b'{"message":"tick"}'


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


def test_senders_behind_one_address_are_told_apart_by_their_certificates(pki, tmp_path):
    cert, key = pki.issue("server", "logs", "DNS:localhost,IP:127.0.0.1")
    agents = {name: pki.issue(name, name, f"DNS:{name}") for name in ("one", "two")}
    options = {"ca": str(pki.ca), "cert": str(cert), "key": str(key), "client_auth": "required"}
    # A second receiver on the same spool knows senders from the spool's blocks.
    for rounds in (("one", "two"), ("one", "two")):
        with Receiver([URL], spool=tmp_path / "spool", options=options) as receiver:
            for name in rounds:
                own, secret = agents[name]
                url = receiver.urls[0]
                with lumberjack.connect(
                    url, ca=str(pki.ca), cert=str(own), key=str(secret), server_name="localhost"
                ) as writer:
                    writer.send(SAME, timeout=20)
    spool = Spool(tmp_path / "spool")
    table = spool.read(columns=["repeat", "attributes", "digest"]).to_table()
    assert table["repeat"].to_pylist() == [False] * 40 + [True] * 40
    senders = [dict(one)["sender"] for one in table["attributes"].to_pylist()]
    assert senders[:40] == senders[40:]
    assert len(set(senders)) == 2
    assert all(sender.startswith("tls:") for sender in senders)
    digests = table["digest"].to_pylist()
    assert digests[:40] == digests[40:]
    assert len(set(digests)) == 40


def marks(spool: Path) -> list[bool]:
    return Spool(spool).read(columns=["repeat"]).to_table()["repeat"].to_pylist()


def test_equal_events_that_the_command_line_sends_one_after_another_are_all_new(receiver, tmp_path):
    spool = tmp_path / "spool"
    for _ in range(3):
        running = receiver("--spool", str(spool))
        for _ in range(3):
            sent = command("send", running.url, "-", given=TICK.decode() + "\n")
            assert sent.returncode == 0, sent.stderr
        # The next receiver finds the links that had ended in order before this one was killed.
        running.kill()
    assert marks(spool) == [False] * 9


def test_two_writers_at_once_that_send_equal_events_are_two(tmp_path):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:

        def write() -> None:
            with lumberjack.connect(receiver.urls[0]) as writer:
                for _ in range(5):
                    writer.send([TICK], timeout=20)

        writers = [threading.Thread(target=write) for _ in range(2)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert marks(tmp_path / "spool") == [False] * 10


@pytest.mark.parametrize("is_announced", [True, False])
def test_over_tls_an_end_is_in_order_if_it_is_announced(pki, tmp_path, is_announced):
    cert, key = pki.issue("server", "logs", "DNS:localhost,IP:127.0.0.1")
    options = {"cert": str(cert), "key": str(key)}
    context = ssl.create_default_context(cafile=str(pki.ca))
    with Receiver([URL], spool=tmp_path / "spool", options=options) as receiver:
        for _ in range(2):
            raw = socket.create_connection(address(receiver), timeout=20)
            with context.wrap_socket(raw, server_hostname="localhost") as peer:
                peer.sendall(window(TICK))
                assert peer.recv(6) == b"2A\0\0\0\x01"
                if is_announced:
                    # The peer's end is not waited for.
                    with contextlib.suppress(ssl.SSLEOFError):
                        peer.unwrap()
            wait_until(lambda: not receiver.stats()["connections"], "the connection ends")
    assert marks(tmp_path / "spool") == [False, not is_announced]


def test_after_a_reset_equal_events_are_taken_for_sent_again(tmp_path):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:
        for _ in range(2):
            deliver_and_reset(receiver, TICK)
    assert marks(tmp_path / "spool") == [False, True]
