"""The part of the native module for the Reactive Streams network protocol."""

from ackline._core import (
    PendingOp,
    ReactiveConnection,
    ReactiveElements,
    ReactiveListener,
    ReactiveNames,
    ReactivePublication,
    ReactiveRequest,
    ReactiveSubscription,
    reactive_connect,
    reactive_split,
)

__all__ = [
    "PendingOp",
    "ReactiveConnection",
    "ReactiveElements",
    "ReactiveListener",
    "ReactiveNames",
    "ReactivePublication",
    "ReactiveRequest",
    "ReactiveSubscription",
    "reactive_connect",
    "reactive_split",
]
