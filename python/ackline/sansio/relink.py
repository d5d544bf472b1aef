"""The Relink machines without I/O: `Handshake`, `Binder`, `Link`, and single frames.

A transport begins with a `Handshake` on both sides; a listener asks its `Binder` which link a
connector gets. When it is established, its lifecycle is ``handover``: `Link.attach`, then give
`Handshake.leftover` to `Link.receive`. A link outlives its transports: `Link.detach` when one is
gone, `Link.attach` when a handshake has resumed it.

The user moves the bytes: what arrives goes into `receive`, what `poll_transmit` returns goes out,
and `handle_timeout` is called at the time that `poll_timeout` names. Every `now` is in
milliseconds, counted from wherever the user likes, and never goes back. Timers that are not set are
off.

Example:
    >>> sizes = {"connector_channel_id_size": 1, "listener_channel_id_size": 1}
    >>> link = Link({"role": "connector"} | sizes, epoch=1, link_id=1)
    >>> link.attach(0, resumed=False)
    >>> link.send(0, [b"a"], [b"hello"])
    [0]
    >>> link.poll_transmit(0).hex()
    '110161000500000068656c6c6f000000'
    >>> need = link.receive(0, bytes.fromhex("2d61000000000000"))
    >>> link.poll_event()["acknowledgement"]
    'consumed'
"""

from ackline._relink_core import RelinkBinder as Binder
from ackline._relink_core import RelinkHandshake as Handshake
from ackline._relink_core import RelinkMachine as Link
from ackline._relink_core import relink_decode as decode
from ackline._relink_core import relink_encode as encode

__all__ = ["Binder", "Handshake", "Link", "decode", "encode"]
