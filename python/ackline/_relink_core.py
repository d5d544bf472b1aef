"""Relink's part of the native module."""

from ackline._core import (
    RelinkBatch,
    RelinkBinder,
    RelinkConnecting,
    RelinkHandshake,
    RelinkLink,
    RelinkListener,
    RelinkMachine,
    RelinkMessage,
    RelinkPart,
    RelinkReceipt,
    relink_decode,
    relink_encode,
)

__all__ = [
    "RelinkBatch",
    "RelinkBinder",
    "RelinkConnecting",
    "RelinkHandshake",
    "RelinkLink",
    "RelinkListener",
    "RelinkMachine",
    "RelinkMessage",
    "RelinkPart",
    "RelinkReceipt",
    "relink_decode",
    "relink_encode",
]
