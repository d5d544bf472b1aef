"""The part of the native module for MicroMsg2."""

from ackline._core import (
    MicroMsgBatch,
    MicroMsgBroker,
    MicroMsgConnection,
    MicroMsgFilter,
    MicroMsgListener,
    MicroMsgMessage,
    PendingOp,
    micromsg_connect,
    micromsg_read_properties,
    micromsg_serve,
    micromsg_split,
    micromsg_write_properties,
)

__all__ = [
    "MicroMsgBatch",
    "MicroMsgBroker",
    "MicroMsgConnection",
    "MicroMsgFilter",
    "MicroMsgListener",
    "MicroMsgMessage",
    "PendingOp",
    "micromsg_connect",
    "micromsg_read_properties",
    "micromsg_serve",
    "micromsg_split",
    "micromsg_write_properties",
]
