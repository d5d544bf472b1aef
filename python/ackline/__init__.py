"""Lossless message links: receive from real senders, keep durably, then acknowledge.

* `ackline.lumberjack` and `ackline.aio.lumberjack`: links for threads and for asyncio.
* `ackline.relink` and `ackline.aio.relink`: links that survive their connections, likewise.
* `ackline.bpmux` and `ackline.aio.bpmux`: requests and streams over one
  connection.
* `ackline.reactive` and `ackline.aio.reactive`: publishers and subscribers with demand over one
  connection.
* `ackline.micromsg` and `ackline.aio.micromsg`: messages with properties, acknowledgements, and
  subscriptions with filters.
* `ackline.Receiver`: listens, keeps received events in a spool, acknowledges durable ones.
* `ackline.Spool`: reads the events that a receiver kept, as Arrow.
* `ackline.spark`: the same as a Spark data source (extra ``spark``).
* `ackline.sansio`: the bare state machines, for your own event loop.
"""

from ackline._core import __version__
from ackline.exceptions import (
    AcklineError,
    ForkError,
    LinkClosed,
    LinkLost,
    LinkTimeout,
    PeerCancelled,
    PeerFailed,
    ProtocolError,
    RequestClosed,
    SpoolError,
    StateError,
    StreamFailed,
    TransportError,
    UsageError,
)
from ackline.projection import Elements, Projection
from ackline.receiver import Receiver
from ackline.spool import Consumer, Events, Lease, Slice, Spool

__all__ = [
    "AcklineError",
    "Consumer",
    "Elements",
    "Events",
    "ForkError",
    "Lease",
    "LinkClosed",
    "LinkLost",
    "LinkTimeout",
    "PeerCancelled",
    "PeerFailed",
    "Projection",
    "ProtocolError",
    "Receiver",
    "RequestClosed",
    "Slice",
    "Spool",
    "SpoolError",
    "StateError",
    "StreamFailed",
    "TransportError",
    "UsageError",
    "__version__",
]
