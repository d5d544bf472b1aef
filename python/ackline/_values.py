"""Sizes and times as people write them: one grammar for the command line, URLs and Spark."""

from ackline import _core

__all__ = ["milliseconds", "size"]


def size(text: str) -> int | None:
    """Bytes of a size such as ``4GiB``, ``1.5 MiB``, ``10MB`` or ``65536``; None for other text."""
    return _core.size_in(text)


def milliseconds(text: str) -> int | None:
    """Milliseconds of ``10s``, ``500ms``, ``15m``, ``7d``; ``off`` is 0; None for other text."""
    return 0 if text == "off" else _core.milliseconds_in(text)
