"""What the runners of the conformance vectors share, whatever the protocol."""

from typing import Any

__all__ = [
    "DESCRIPTION",
    "VectorFailure",
    "cut_positions",
    "fail_unless",
    "known",
    "matches",
    "shorten",
    "to_bytes",
]

DESCRIPTION = {"name", "source", "covers", "note"}


class VectorFailure(Exception):  # noqa: N818 (what the README calls it)
    """What was expected and what came."""


def fail_unless(condition: object, expected: object, came: object) -> None:
    if not condition:
        raise VectorFailure(f"expected {shorten(expected)}, came {shorten(came)}")


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


def known(members: dict[str, Any], names: set[str]) -> None:
    unknown = members.keys() - names
    if unknown:
        raise VectorFailure(f"members not understood: {sorted(unknown)}")


def to_bytes(value: Any) -> bytes:
    """BYTES of the vectors' README."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    if "parts" in value:
        known(value, {"parts"})
        return b"".join(to_bytes(part) for part in value["parts"])
    known(value, {"repeat", "count"})
    return bytes.fromhex(value["repeat"]) * int(value["count"])


EVERY_CUT = 8192


def cut_positions(length: int) -> list[int]:
    """Every position inside; of very long bytes those around both ends and each 4,093rd between."""
    if length <= EVERY_CUT:
        return list(range(1, length))
    ends = set(range(1, EVERY_CUT // 2)) | set(range(length - EVERY_CUT // 2, length))
    return sorted(ends | set(range(1, length, max(4093, length // 256))))


def matches(expected: object, came: object) -> bool:
    """Equal, where a member that is left out is not compared."""
    if isinstance(expected, dict) and isinstance(came, dict):
        return all(name in came and matches(value, came[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(came, list):
        pairs = zip(expected, came, strict=False)
        return len(expected) == len(came) and all(matches(one, two) for one, two in pairs)
    return expected == came
