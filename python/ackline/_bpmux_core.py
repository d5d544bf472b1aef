"""bpmux's part of the native module."""

from typing import Literal, TypeAlias

from ackline._core import (
    BpmuxConnection,
    BpmuxListener,
    BpmuxMachine,
    BpmuxRequest,
    BpmuxResponse,
    BpmuxServing,
    BpmuxSink,
    BpmuxStream,
    PendingOp,
    bpmux_connect,
    bpmux_connect_within,
    bpmux_decode,
    bpmux_encode,
)

__all__ = [
    "BpmuxConnection",
    "BpmuxListener",
    "BpmuxMachine",
    "BpmuxRequest",
    "BpmuxResponse",
    "BpmuxServing",
    "BpmuxSink",
    "BpmuxStream",
    "PendingOp",
    "Target",
    "bpmux_connect",
    "bpmux_connect_within",
    "bpmux_decode",
    "bpmux_encode",
]

Target: TypeAlias = Literal["top"] | tuple[Literal["own", "peer"], int]
