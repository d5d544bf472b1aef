"""Senders of Lumberjack for the tests of the command line, with events and windows of their own."""

import json
import os
import socket
import struct

ACK = b"2A\0\0\0"


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("lumberjack://").split(":")
    return socket.create_connection((host, int(port)))


def write_events(path, count: int) -> list[str]:
    lines = [f'{{"n":{n},"text":"ä"}}' for n in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return lines


def a_window(payload: bytes) -> bytes:
    return b"2W\0\0\0\1" + b"2J\0\0\0\1" + struct.pack(">I", len(payload)) + payload


def full_spool(tmp_path) -> list[str]:
    return ["--spool", str(tmp_path / "spool"), "--budget", "512KiB", "--segment-bytes", "64KiB"]


def fill(running) -> list[socket.socket]:
    """Two senders at a spool whose budget is full: each has windows that are not acknowledged."""
    event = json.dumps({"x": os.urandom(30_000).hex()}).encode()
    peers = [connect(running.url) for _ in range(2)]
    stats = running.next("stats")
    while stats["paused"] is None:
        for peer in peers:
            peer.sendall(a_window(event) * 4)
        stats = running.next("stats")
    assert stats["paused"] == "budget"
    # Events on their way when it stopped reading are counted by now.
    while (newer := running.next("stats"))["unacked_windows"] != stats["unacked_windows"]:
        stats = newer
    return peers
