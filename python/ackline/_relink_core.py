"""Relink's part of the native module."""

from ackline._core import (
    RelinkBatch,
    RelinkConnecting,
    RelinkLink,
    RelinkListener,
    RelinkMessage,
    RelinkPart,
    RelinkReceipt,
)

__all__ = [
    "RelinkBatch",
    "RelinkConnecting",
    "RelinkLink",
    "RelinkListener",
    "RelinkMessage",
    "RelinkPart",
    "RelinkReceipt",
]
