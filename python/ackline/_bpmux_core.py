"""bpmux's part of the native module."""

from typing import Literal, TypeAlias

from ackline._core import BpmuxMachine, bpmux_decode, bpmux_encode

__all__ = ["BpmuxMachine", "Target", "bpmux_decode", "bpmux_encode"]

Target: TypeAlias = Literal["top"] | tuple[Literal["own", "peer"], int]
