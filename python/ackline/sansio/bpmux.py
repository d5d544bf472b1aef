"""The bpmux machine without I/O: `Connection`, and single chunks.

The user moves the bytes: what arrives goes into `receive`, what `poll_transmit` returns goes out,
and `handle_timeout` is called at the time that `poll_timeout` names. Every `now` is in
milliseconds, counted from wherever the user likes, and never goes back. Timers that are not set are
off, and credit is given by `grant_credit` unless the option ``credit`` says otherwise.

Example:
    >>> end = Connection(0, {})
    >>> end.open("sink", 1, b"")
    >>> end.poll_transmit(0).hex()
    'a00100'
    >>> end.send(("own", 1), b"hello")
    >>> end.poll_transmit(0)
    b''
    >>> need = end.receive(0, bytes.fromhex("f00105"))
    >>> end.poll_transmit(0).hex()
    '60010568656c6c6f'
"""

from ackline._bpmux_core import BpmuxMachine as Connection
from ackline._bpmux_core import Target
from ackline._bpmux_core import bpmux_decode as decode
from ackline._bpmux_core import bpmux_encode as encode

__all__ = ["Connection", "Target", "decode", "encode"]
