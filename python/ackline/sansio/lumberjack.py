"""The Lumberjack machines without I/O: `Reader`, `Writer`, and single frames.

The user moves the bytes: what arrives goes into `receive`, what `poll_transmit` returns goes out,
and `handle_timeout` is called at the time that `poll_timeout` names. Every `now` is in
milliseconds, counted from wherever the user likes, and never goes back. A machine's time begins
with its first call, such as ``receive(now, b"")``. Timers that are not set are off.

Example:
    >>> reader = Reader({})
    >>> window = bytes.fromhex("325700000001324a0000000100000002") + b"{}"
    >>> need = reader.receive(0, window)
    >>> reader.poll_event().records
    [(1, b'{}')]
    >>> reader.ack(0, 1)
    >>> reader.poll_transmit(0).hex()
    '324100000001'
"""

from ackline._core import LumberjackReader as Reader
from ackline._core import LumberjackReaderWindow as Window
from ackline._core import LumberjackWriter as Writer
from ackline._core import lumberjack_decode as decode
from ackline._core import lumberjack_encode as encode

__all__ = ["Reader", "Window", "Writer", "decode", "encode"]
