"""A second reading of Lumberjack: slow, short, written from the rules and not from our decoder.

It knows no sockets, no time and no streams: bytes in; out come frames or windows, or the name of
the rule that they break.
"""

import struct
import zlib
from typing import Any

LIMITS = {
    "window": 65_536, "json": 16 << 20, "data": 16 << 20, "compressed": 32 << 20,
    "inflated": 100 << 20, "pairs": 1024, "field": 1 << 20,
}  # fmt: skip


class Refused(Exception):  # noqa: N818 (named after the verdict on the bytes)
    """The rule that the bytes break."""


class Wait(Exception):  # noqa: N818 (no error)
    """The bytes end inside a frame."""


def refuse_if(condition: object, rule: str) -> None:
    if condition:
        raise Refused(rule)


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise Wait
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        number: int = struct.unpack(">I", self.take(4))[0]
        return number


def frame(source: Bytes, limits: dict[str, int], *, inside: bool = False) -> dict[str, Any]:
    """The next frame of a writer."""
    digit = source.take(1)
    refuse_if(digit not in (b"1", b"2"), "unknown_version")
    head = {"version": int(digit)}
    kind = source.take(1)
    refuse_if(kind == b"A", "wrong_direction")
    refuse_if(kind == b"C" and inside, "nested_envelope")
    if kind == b"W":
        size = source.number()
        refuse_if(size > limits["window"], "window_too_large")
        return {"type": "window", "window_size": size} | head
    if kind == b"J":
        sequence, length = source.number(), source.number()
        refuse_if(length == 0, "empty_json")
        refuse_if(length > limits["json"], "frame_too_large")
        return {"type": "json", "sequence_number": sequence, "payload": source.take(length)} | head
    if kind == b"D":
        return {"type": "data", "sequence_number": source.number()} | data(source, limits) | head
    refuse_if(kind != b"C", "unknown_frame_type")
    length = source.number()
    refuse_if(length > limits["compressed"], "frame_too_large")
    inner = Bytes(inflated(source.take(length), limits["inflated"]))
    frames = []
    while inner.at < len(inner.data):
        try:
            frames.append(frame(inner, limits, inside=True))
        except Wait:
            raise Refused("truncated_envelope") from None
    return {"type": "compressed", "frames": frames} | head


def data(source: Bytes, limits: dict[str, int]) -> dict[str, Any]:
    count = source.number()
    refuse_if(count > limits["pairs"], "too_many_pairs")
    pairs, total = [], 10
    for _ in range(count):
        pair = []
        for _ in range(2):
            length = source.number()
            total += 4 + length
            refuse_if(length > limits["field"], "field_too_large")
            refuse_if(total > limits["data"], "frame_too_large")
            pair.append(source.take(length))
        pairs.append(pair)
    return {"pairs": pairs}


def inflated(stream: bytes, limit: int) -> bytes:
    inflate = zlib.decompressobj()
    try:
        out = inflate.decompress(stream, limit + 1)
    except zlib.error:
        raise Refused("zlib") from None
    refuse_if(len(out) > limit, "inflated_too_large")
    refuse_if(not inflate.eof, "zlib")
    refuse_if(inflate.unused_data, "trailing_bytes")
    return out


def decode(data: bytes, limits: dict[str, int]) -> tuple[list[dict[str, Any]], int]:
    """The whole frames at the front, and how many bytes they are."""
    source, frames, taken = Bytes(data), [], 0
    while True:
        try:
            frames.append(frame(source, LIMITS | limits))
        except Wait:
            return frames, taken
        taken = source.at


class Reader:
    """The windows of one connection whose sender stays with one version."""

    def __init__(self) -> None:
        self.windows: list[list[int]] = []
        self.size: int | None = None
        self.records: list[int] = []

    def receive(self, data: bytes) -> str | None:
        """The rule that the bytes break, if any; `windows` are those that were complete before."""
        source = Bytes(data)
        try:
            while True:
                self.handle(frame(source, LIMITS))
        except Wait:
            return None
        except Refused as refused:
            return str(refused)

    def handle(self, each: dict[str, Any], version: int | None = None) -> None:
        refuse_if(version not in (None, each["version"]), "version_mixed")
        if each["type"] == "compressed":
            for inner in each["frames"]:
                self.handle(inner, each["version"])
        elif each["type"] == "window":
            open_window = self.size is not None and self.size > len(self.records)
            if each["version"] == 1:
                open_window = bool(self.records)
            refuse_if(open_window, "premature_window")
            self.size, self.records = each["window_size"], []
        else:
            self.record(each["version"], each["sequence_number"])

    def record(self, version: int, sequence: int) -> None:
        if self.size is None:
            self.windows.append([sequence])
            return
        refuse_if(len(self.records) >= self.size, "overrun")
        self.records.append(sequence)
        if len(self.records) == self.size:
            self.windows.append(self.records)
            # Version 1 announces once and goes on.
            if version == 1:
                self.records = []
