"""Sizes and times as people write them: one grammar for the command line and Spark's options."""

import re
from decimal import Decimal

__all__ = ["milliseconds", "size"]

_UNITS = {
    "": 1, "B": 1,
    "K": 1 << 10, "KB": 1000, "KIB": 1 << 10,
    "M": 1 << 20, "MB": 1000**2, "MIB": 1 << 20,
    "G": 1 << 30, "GB": 1000**3, "GIB": 1 << 30,
    "T": 1 << 40, "TB": 1000**4, "TIB": 1 << 40,
}  # fmt: skip
_TIMES = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def size(text: str) -> int | None:
    """Bytes of a size such as ``4GiB``, ``1.5 MiB``, ``10MB`` or ``65536``; None for other text."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        return None
    return int(Decimal(match[1]) * _UNITS[match[2].upper()])


def milliseconds(text: str) -> int | None:
    """Milliseconds of ``10s``, ``500ms``, ``15m``, ``7d``; ``off`` is 0; None for other text."""
    if text == "off":
        return 0
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _TIMES:
        return None
    return int(Decimal(match[1]) * _TIMES[match[2]])
