"""Hostile peers of Relink at a receiver, under the rules of `test_hostile.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ackline import relink

Receive = Callable[..., Any]


def test_channels_that_stay_open_are_charged_to_the_memory(
    receive: Receive, tmp_path: Path
) -> None:
    url = "relink://127.0.0.1:0/orders?connector_channel_id_size=4"
    receiver = receive("--spool", str(tmp_path / "spool"), url=url, memory=8 << 20)
    opened = 60_000
    links = [relink.connect(receiver.url) for _ in range(4)]
    try:
        for link in links:
            link.send_to(list(range(opened)), b"", timeout=20)
        line = receiver.wait("refused", lambda line: line["option"] == "--memory", timeout=60)
        assert line["code"] == "relink.limit_exceeded"
        assert 0 < line["limit"] < line["value"] <= 2 << 20
        # Another peer has channels free of charge.
        with relink.connect(receiver.url) as other:
            for channel in range(100):
                last = other.send(channel, b"x")
            last.consumed(timeout=20)
    finally:
        for link in links:
            link.discard()
