"""bpmux's part of the native module."""

from ackline._core import (
    BpmuxConnection,
    BpmuxListener,
    BpmuxRequest,
    BpmuxResponse,
    BpmuxServing,
    BpmuxSink,
    BpmuxStream,
    PendingOp,
    bpmux_connect,
    bpmux_connect_within,
)

__all__ = [
    "BpmuxConnection",
    "BpmuxListener",
    "BpmuxRequest",
    "BpmuxResponse",
    "BpmuxServing",
    "BpmuxSink",
    "BpmuxStream",
    "PendingOp",
    "bpmux_connect",
    "bpmux_connect_within",
]
