"""Relink for asyncio: links that survive their connections, with channels and transactions.

For threads see `ackline.relink`. A cancelled ``await`` loses nothing: a wait takes nothing, and a
message that was sent stays sent.
"""

from typing import Unpack

from ackline._payloads import ArrowArray, Buffer, Payload, Payloads
from ackline._relink import (
    Channel,
    Decision,
    Event,
    Message,
    Outcome,
    Peer,
    State,
    Told,
    handed_over,
)
from ackline._relink_core import RelinkConnecting, RelinkListener
from ackline._relink_options import RelinkAdoptOptions as AdoptOptions
from ackline._relink_options import RelinkConnectOptions as ConnectOptions
from ackline._relink_options import RelinkListenOptions as ListenOptions
from ackline._table import known, signed
from ackline.aio._relink_links import Link, Listener, Receipt
from ackline.aio._wait import Connecting, ready
from ackline.exceptions import LinkClosed, Unacknowledged

__all__ = [
    "AdoptOptions",
    "ArrowArray",
    "Buffer",
    "Channel",
    "ConnectOptions",
    "Decision",
    "Event",
    "Link",
    "ListenOptions",
    "Listener",
    "Message",
    "Outcome",
    "Payload",
    "Payloads",
    "Peer",
    "Receipt",
    "State",
    "Told",
    "Unacknowledged",
    "adopt",
    "connect",
    "listen",
]


@signed("relink.connect")
def connect(url: str, **options: Unpack[ConnectOptions]) -> Connecting[Link]:
    """Makes a link to a listener and keeps it connected.

    ``await`` it, or use it with ``async with``.

    Args:
        url: Such as ``relink://127.0.0.1:7000/orders``, ``relink+tls://host:7000/orders`` or
            ``relink+unix:///run/x.sock?endpoint=orders``; its query may set options of the link,
            which go before keywords. Of the four parameters (channel id sizes and transactions),
            which both ends must have alike, a keyword that is not the default must say the same.
        options: See `ConnectOptions`.

    Raises:
        UsageError: The URL or an option is not understood, or ``state`` cannot be used.
        TransportError: The listener could not be reached, or ended the handshake; with ``timeout``,
            until it had passed.
    """
    return Connecting(_connected, RelinkConnecting(url, known("relink.connect", options)))


@signed("relink.adopt")
def adopt(url: str, state: bytes, **options: Unpack[AdoptOptions]) -> Connecting[Link]:
    """Goes on with a link that another process has handed over, to decide on its messages.

    When this returns, the listener has said that it still has the link and its messages. Nothing
    else can be sent on their channels before they are consumed. One process at a time may go on
    with a link: if two do, the listener serves the later one.

    ``await`` it, or use it with ``async with``.

    Args:
        url: The listener, as for `connect`.
        state: The result of `Link.hand_over`. Channel id sizes and transactions are in it.
        options: See `AdoptOptions`; ``timeout`` is the time in which the link must go on. With
            ``cert``, a link belongs to the identity that made it.

    Raises:
        UsageError: ``wrong_state``, ``other_endpoint``, or as `connect`.
        TransportError: The listener could not be reached, or ended the handshake.
        LinkLost: The listener does not know the link or its messages any more.

    Example:
        >>> async with adopt("relink://127.0.0.1:7000/orders", state) as link:  # doctest: +SKIP
        ...     link.commit(7, link.last_receipt(7).sequence)
    """
    handed = handed_over(state)
    return Connecting(_connected, RelinkConnecting(url, known("relink.adopt", options), handed))


@signed("relink.listen")
def listen(
    url: str,
    *,
    endpoints: dict[str, dict[str, int | bool]] | None = None,
    **options: Unpack[ListenOptions],
) -> Listener:
    """Listens for links.

    Returns at once; use it with ``async with``.

    Args:
        url: Such as ``relink://127.0.0.1:7000/orders``, as for `connect`; port 0 is allowed.
        endpoints: Further endpoints at the same address: for each name those of the four parameters
            that differ from 4 bytes without transactions.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, an option or file is wrong, or ``state`` cannot be
            used.
        TransportError: The address cannot be listened on.
    """
    given = known("relink.listen", options)
    return Listener(RelinkListener(url, given | {"endpoints": endpoints}))


async def _connected(connecting: RelinkConnecting) -> Link:
    await ready(connecting.wait_async, None)
    core = connecting.take()
    if core is None:
        raise LinkClosed("the link was taken before")
    return Link(core)
