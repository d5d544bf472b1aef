"""bpmux's part of the native module."""

from typing import Literal, TypeAlias

from ackline._core import (
    BpmuxConnection,
    BpmuxDoing,
    BpmuxListener,
    BpmuxMachine,
    BpmuxRequest,
    BpmuxResponse,
    BpmuxServing,
    BpmuxSink,
    BpmuxStream,
    bpmux_connect,
    bpmux_connect_within,
    bpmux_decode,
    bpmux_encode,
)

__all__ = [
    "BpmuxConnection",
    "BpmuxDoing",
    "BpmuxListener",
    "BpmuxMachine",
    "BpmuxRequest",
    "BpmuxResponse",
    "BpmuxServing",
    "BpmuxSink",
    "BpmuxStream",
    "Target",
    "bpmux_connect",
    "bpmux_connect_within",
    "bpmux_decode",
    "bpmux_encode",
]

Target: TypeAlias = Literal["top"] | tuple[Literal["own", "peer"], int]
