"""The bare machine of any protocol: bytes in, events and bytes out, and the time is told to it.

The user moves the bytes: bytes that arrive go into `Machine.receive`, those of
`Machine.poll_transmit` go out, and `Machine.handle_timeout` is called at the time that
`Machine.poll_timeout` names. Every `now` is in milliseconds, counted from wherever the user likes,
and never goes back. Timers that are not set are off. `describe` lists roles, options, verbs,
events and frames; their types are in `ackline.sansio.types`.

Example:
    >>> reader = Machine("lumberjack", "reader")
    >>> need = reader.receive(0, bytes.fromhex("325700000001324a0000000100000002") + b"{}")
    >>> reader.poll_event()["records"]
    [{'type': 'json', 'sequence_number': 1, 'payload': b'{}'}]
    >>> reader.call(0, "ack", window=1)
    >>> reader.poll_transmit(0).hex()
    '324100000001'
"""

from ackline._sansio_core import Machine
from ackline._sansio_core import sansio_decode as decode
from ackline._sansio_core import sansio_describe as describe
from ackline._sansio_core import sansio_encode as encode
from ackline._sansio_core import sansio_protocols as protocols

__all__ = ["Machine", "decode", "describe", "encode", "protocols"]
