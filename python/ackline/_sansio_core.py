"""The bare machines of the native module."""

from ackline._core import (
    Machine,
    sansio_decode,
    sansio_describe,
    sansio_encode,
    sansio_protocols,
)

__all__ = [
    "Machine",
    "sansio_decode",
    "sansio_describe",
    "sansio_encode",
    "sansio_protocols",
]
