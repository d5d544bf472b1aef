"""Envelopes that a writer sends, read by Python's own zlib."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from ackline import sansio

HEADER = struct.Struct(">2sI")


def stream(payload: bytes, level: int) -> bytes:
    """Return the zlib stream of an envelope that holds one event."""
    event = {"type": "json", "version": 2, "sequence_number": 1, "payload": payload}
    frame = {"type": "compressed", "version": 2, "frames": [event], "level": level}
    wire = sansio.encode("lumberjack", [frame])
    kind, length = HEADER.unpack_from(wire)
    assert (kind, length) == (b"2C", len(wire) - HEADER.size)
    return wire[HEADER.size :]


@pytest.mark.parametrize("level", range(10))
def test_zlib_reads_every_level_to_its_end(level: int) -> None:
    for payload in (
        b"{}",
        b'{"message":"GET /shop/item/7 HTTP/1.1"}' * 50_000,
        random.Random(5).randbytes(300_000),
    ):
        inflate = zlib.decompressobj()
        plain = inflate.decompress(stream(payload, level))
        assert inflate.eof
        assert inflate.unused_data == b""
        assert plain == struct.pack(">2sII", b"2J", 1, len(payload)) + payload
