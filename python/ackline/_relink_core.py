"""Relink's part of the native module."""

from ackline._core import (
    RelinkBinder,
    RelinkHandshake,
    RelinkMachine,
    relink_decode,
    relink_encode,
)

__all__ = [
    "RelinkBinder",
    "RelinkHandshake",
    "RelinkMachine",
    "relink_decode",
    "relink_encode",
]
