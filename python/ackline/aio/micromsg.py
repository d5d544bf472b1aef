"""MicroMsg2 for asyncio: messages with properties, acknowledgements, and subscriptions.

Both ends send messages, and each direction has a window of messages that are not acknowledged. The
handshake agrees on extensions: by default acknowledgements in groups (``batch-ack``) and
subscriptions (``pub-sub``). For threads see `ackline.micromsg`. A cancelled ``await`` loses
nothing: a wait takes nothing, and a message that was sent stays sent.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Unpack

from ackline._closing import tell_loss
from ackline._connections import Peer, late
from ackline._deadline import deadline_in, left_until
from ackline._micromsg import (
    ENDING,
    MOST_MESSAGES,
    PATIENCE,
    Arrival,
    Codec,
    Command,
    ConnectionBase,
    Extension,
    Filter,
    Message,
    Outgoing,
    Properties,
    Proposal,
    Sendable,
    Subscribe,
    Unsubscribe,
    Value,
    Where,
    arrival,
    read_properties,
    where,
    write_properties,
)
from ackline._micromsg_core import (
    MicroMsgBatch,
    MicroMsgConnection,
    MicroMsgListener,
    PendingOp,
    micromsg_connect,
)
from ackline._micromsg_options import MicromsgConnectOptions as ConnectOptions
from ackline._micromsg_options import MicromsgListenOptions as ListenOptions
from ackline._micromsg_terms import proposed
from ackline._payloads import Buffer
from ackline._table import known, signed
from ackline.aio._block import Block
from ackline.aio._ending import ended
from ackline.aio._listener import AcceptingListener
from ackline.aio._micromsg_broker import Broker, ServeOptions, serve
from ackline.aio._wait import Connecting, ready
from ackline.exceptions import LinkClosed, LinkTimeout, TransportError

__all__ = [
    "Arrival",
    "Broker",
    "Codec",
    "Command",
    "ConnectOptions",
    "Connection",
    "Extension",
    "Filter",
    "ListenOptions",
    "Listener",
    "Message",
    "Outgoing",
    "Peer",
    "Properties",
    "Proposal",
    "Sendable",
    "ServeOptions",
    "Subscribe",
    "Unsubscribe",
    "Value",
    "Where",
    "connect",
    "listen",
    "read_properties",
    "serve",
    "where",
    "write_properties",
]

_NONE: Mapping[str, str] = MappingProxyType({})


@signed("micromsg.connect")
def connect(
    url: str, *, timeout: float | None = None, **options: Unpack[ConnectOptions]
) -> Connecting["Connection"]:
    """Connects, and waits until the handshake has ended.

    With ``negotiation="manual"`` it waits for the server's proposal, which `Connection.answer`
    answers.

    ``await`` it, or use it with ``async with``.

    Args:
        url: ``micromsg://host:port``, ``micromsg+tls://host:port`` or ``micromsg+unix:///path``.
        timeout: Seconds for all of it; None leaves it to ``connect_timeout`` and
            ``handshake_timeout``.
        options: See `ConnectOptions`.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached, or not be trusted.
        PeerFailed: The peer refuses the handshake, such as for a missing extension.
        ProtocolError: The peer broke a rule, or lacks an extension that this end requires.
        LinkTimeout: The handshake has not ended within `timeout`.
    """
    given = known("micromsg.connect", options)
    deadline_in(timeout)
    return Connecting(_connected, micromsg_connect(url, given), timeout)


@signed("micromsg.listen")
def listen(url: str, **options: Unpack[ListenOptions]) -> "Listener":
    """Listens for connections.

    Returns at once; use it with ``async with``.

    Args:
        url: As for `connect`; port 0 is any free one.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(MicroMsgListener(url, known("micromsg.listen", options)))


class Connection(Block, ConnectionBase):
    """One end of a connection. A cancelled wait of any method takes nothing.

    It ends at once when it is dropped. An `async with` block waits at its end until all messages of
    this end are acknowledged, for up to 10 s. If they are not, it raises `LinkLost` with their
    number. Without acknowledgements it waits until they are sent. If an exception leaves the block,
    the connection ends at once.

    With ``ack_policy="auto"`` a received message counts as processed when the next one is asked
    for, and at the end of the block. Messages, commands and frames of extensions wait apart; those
    that nobody takes are held in memory, and nothing more is received once they fill `memory` or
    are 65,536.

    Example:
        >>> async with connect("micromsg://127.0.0.1:8334") as connection:  # doctest: +SKIP
        ...     await connection.send(b"21.5", "rooms/7", {"celsius": 21.5})
        ...     await connection.wait_acknowledged()
    """

    async def wait_connected(self, *, timeout: float | None = None) -> None:
        """Waits for the end of the handshake, at a listener's end.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It has not ended in time.
            PeerFailed: The peer refuses it.
            ProtocolError: The peer broke a rule.
            LinkClosed: The connection is over.
        """
        deadline = deadline_in(timeout)
        while self._core.connected() is None:
            if not await ready(partial(self._core.wait_async, "connected"), left_until(deadline)):
                raise late("the handshake did not end", timeout)

    async def wait_proposal(self, *, timeout: float | None = None) -> Proposal:
        """Waits for the extensions that the peer proposes, with ``negotiation="manual"``.

        `answer` answers it, or `fail` refuses the peer; until then the peer waits.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It has not come in time.
            UsageError: ``nothing_proposed``: it was answered, or the connection answers by itself.
            PeerFailed: The peer has ended the connection with an error.
            ProtocolError: The peer broke a rule.
            LinkClosed: The connection is over.

        Example:
            >>> async with await listener.accept() as connection:  # doctest: +SKIP
            ...     asked = await connection.wait_proposal()
            ...     if asked.identity in known:
            ...         connection.answer("json", "batch-ack:max-count=50")
            ...         await connection.wait_connected()
        """
        deadline = deadline_in(timeout)
        while (native := self._core.proposal()) is None:
            if not await ready(partial(self._core.wait_async, "proposed"), left_until(deadline)):
                raise late("the peer proposed nothing", timeout)
        return proposed(native)

    async def send(
        self,
        payload: Buffer,
        destination: str = "",
        properties: Properties | None = None,
        *,
        dotnet_type: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Sends a message; waits while the window is full, or `send_bytes` leaves no room.

        Args:
            payload: Bytes, or anything else with a buffer of bytes, up to 16 MiB.
            destination: The name of a topic or queue: ASCII, at most 255 characters.
            properties: Numbers, dates and texts by name, for filters; 65,535 bytes on the wire at
                most. A name is printable ASCII without a space and without ``: ; , =``; names of
                lower-case letters, digits and hyphens can be read by every peer. A datetime has a
                time zone.
            dotnet_type: Its .NET type, if the extension ``dotnet`` was agreed on.
            timeout: Seconds; None waits for ever.

        Returns:
            Its position among all messages of this end, from 1, for `wait_acknowledged`.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: ``message_too_large``, ``not_ascii``, ``out_of_range``, ``invalid_name``,
                ``invalid_value``, ``not_finite``, ``extension_not_negotiated``.
            PeerFailed: The peer has ended the connection with an error.
            LinkClosed: The connection is over.
        """
        batch = MicroMsgBatch.one(payload, destination, properties, dotnet_type)
        return await self._send(batch, timeout)

    async def send_some(self, messages: Iterable[Sendable], *, timeout: float | None = None) -> int:
        """Sends many messages in order, faster than one by one.

        Args:
            messages: Each an `Outgoing`, a tuple that begins as one, or a payload alone.
            timeout: Seconds for all of them; None waits for ever.

        Returns:
            The position of the last one; 0 if there are none.

        Raises:
            LinkTimeout: There was no room in time; the first of them may have been sent.
            UsageError: As by `send`. A wrong type, name or value is found before anything is sent;
                otherwise the messages before the refused one were sent. Raises also as `send`.
        """
        return await self._send(MicroMsgBatch(messages), timeout)

    async def wait_acknowledged(
        self, position: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Waits until messages of this end are acknowledged.

        Args:
            position: The position of the last of them; None is all that were sent so far.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: They were not acknowledged in time.
            LinkLost: The connection has ended before, with the number of messages that were not
                acknowledged.
            UsageError: ``extension_not_negotiated``: the connection has no acknowledgements;
                ``out_of_range``: no such message was sent.
            PeerFailed: The peer has ended the connection with an error.
            ProtocolError: The peer broke a rule.
        """
        deadline = deadline_in(timeout)
        last = self._core.stats()["sent"] if position is None else position
        while not self._core.try_acknowledged(last):
            if not await ready(
                partial(self._core.wait_async, "acknowledged", number=last), left_until(deadline)
            ):
                raise late("not all messages were acknowledged", timeout)

    async def receive(self, *, timeout: float | None = None) -> Message | None:
        """Waits for the next message.

        With ``ack_policy="auto"`` the messages that were received before count as processed.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The message; None once the peer has ended the connection in order.

        Raises:
            LinkTimeout: None came in time.
            PeerFailed: The peer has ended the connection with an error.
            ProtocolError: The peer broke a rule.
            TransportError: The transport failed.
            LinkClosed: The connection is over.
        """
        deadline = deadline_in(timeout)
        while (message := self._core.try_receive()) is None:
            if not await ready(partial(self._core.wait_async, "message"), left_until(deadline)):
                raise late("no message came", timeout)
        return message or None

    async def receive_some(
        self, max_messages: int = MOST_MESSAGES, *, timeout: float | None = None
    ) -> list[Message]:
        """Waits for messages, and returns those that are there, at least one.

        With ``ack_policy="auto"`` they count as processed, all of them, when the next ones are
        asked for.

        Args:
            max_messages: The most that are returned, at least 1. A message with which the payloads
                reach 1 MiB is the last one.
            timeout: Seconds; None waits for ever.

        Returns:
            The messages; an empty list once the peer has ended the connection in order.

        Raises:
            LinkTimeout: None came in time; raises also as `receive`.
        """
        deadline = deadline_in(timeout)
        while (messages := self._core.try_receive_some(max_messages)) is not None:
            if messages:
                return messages
            if not await ready(partial(self._core.wait_async, "message"), left_until(deadline)):
                raise late("no message came", timeout)
        return []

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            while (message := self._core.try_receive()) is None:
                await ready(partial(self._core.wait_async, "message"), None)
            if message is False:
                return
            yield message

    async def subscribe(
        self,
        topic: str,
        filter: str | Filter | None = None,  # noqa: A002 (the protocol's word)
        *,
        timeout: float | None = None,
    ) -> None:
        """Subscribes to a topic or a queue of the peer; replaces the subscription to it before.

        Args:
            topic: Its name: ASCII, at most 255 characters.
            filter: The condition on properties that messages must match, as a `Filter` or its text;
                None is every message.
            timeout: Seconds until there is room to send it; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: ``not_ascii``, ``out_of_range``: no message can have this destination;
                ``invalid_filter``, with the reason; ``extension_not_negotiated``: the handshake did
                not agree on ``pub-sub``.
            LinkClosed: The connection is over.
        """
        text = (
            None if filter is None else str(Filter(filter) if isinstance(filter, str) else filter)
        )
        deadline = deadline_in(timeout)
        while not self._core.try_subscribe(topic, text):
            await self._wait_room(0, deadline, timeout)

    async def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Ends a subscription; raises as `subscribe`.

        Args:
            topic: The name of the topic or queue.
            timeout: Seconds until there is room to send it; None waits for ever.
        """
        deadline = deadline_in(timeout)
        while not self._core.try_unsubscribe(topic):
            await self._wait_room(0, deadline, timeout)

    async def command(
        self,
        name: str,
        properties: Mapping[str, str] = _NONE,
        *,
        timeout: float | None = None,
    ) -> None:
        """Sends a command.

        Args:
            name: Its name: lower-case letters, digits and hyphens.
            properties: Texts by names of the same form.
            timeout: Seconds until there is room to send it; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: ``invalid_name``.
            LinkClosed: The connection is over.
        """
        deadline, pairs = deadline_in(timeout), list(properties.items())
        while not self._core.try_command(name, pairs):
            await self._wait_room(0, deadline, timeout)

    async def receive_command(self, *, timeout: float | None = None) -> Arrival | None:
        """Waits for the next command of the peer: its subscriptions, and others.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            A `Subscribe`, an `Unsubscribe` or a `Command`; None once the peer has ended the
            connection in order.

        Raises:
            LinkTimeout: None came in time; raises also as `receive`.
        """
        deadline = deadline_in(timeout)
        while (arrived := self._core.try_receive_command()) is None:
            if not await ready(partial(self._core.wait_async, "command"), left_until(deadline)):
                raise late("no command came", timeout)
        return arrival(arrived)

    async def commands(self) -> AsyncIterator[Arrival]:
        """Iterates over the commands of the peer, as `receive_command`."""
        while (command := await self.receive_command()) is not None:
            yield command

    async def send_extension(
        self, name: str, payload: Buffer, *, timeout: float | None = None
    ) -> None:
        """Sends a frame of an extension.

        Args:
            name: The extension's name, such as ``x-trace``.
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds until there is room to send it; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: ``extension_not_negotiated``.
            LinkClosed: The connection is over.
        """
        deadline = deadline_in(timeout)
        while not self._core.try_send_extension(name, payload):
            await self._wait_room(memoryview(payload).nbytes, deadline, timeout)

    async def receive_extension(self, *, timeout: float | None = None) -> tuple[str, bytes] | None:
        """Waits for the next frame of an extension.

        Frames of ``ack``, ``batch-ack`` and ``dotnet`` do not come this way.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The extension's name and the bytes; None once the peer has ended the connection in
            order.

        Raises:
            LinkTimeout: None came in time; raises also as `receive`.
        """
        deadline = deadline_in(timeout)
        while (frame := self._core.try_receive_extension()) is None:
            if not await ready(partial(self._core.wait_async, "extension"), left_until(deadline)):
                raise late("no frame of an extension came", timeout)
        return frame or None

    async def extension_frames(self) -> AsyncIterator[tuple[str, bytes]]:
        """Iterates over the frames of extensions, as `receive_extension`."""
        while (frame := await self.receive_extension()) is not None:
            yield frame

    async def fail(self, message: str, *, timeout: float | None = ENDING) -> None:
        """Ends the connection with an ERROR frame, behind everything that was sent.

        Args:
            message: The reason, for the peer.
            timeout: Seconds until it is sent; then the connection is cut off. None waits for ever.

        Raises:
            LinkClosed: The connection is over.
        """
        deadline_in(timeout)
        self._core.fail(message)
        self._is_over = True
        await ready(partial(self._core.wait_async, "end"), timeout)
        self.abort()

    async def close(self, *, timeout: float | None = None) -> None:
        """Ends the connection in order.

        It waits until every message of this end is acknowledged, if there are acknowledgements, and
        sends everything that waits. With ``ack_policy="auto"`` it acknowledges the messages that
        were received. Then it waits up to 1 s for the peer's end, which is no error if it does not
        come.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: Not everything was acknowledged or sent in time; the connection goes on.
            LinkLost: It has ended before everything was acknowledged, with the number of messages.
            PeerFailed: The peer has ended the connection with an error, before that.
            LinkClosed: It has ended in another way.
        """
        await ended(self._core.close(timeout), "not everything was acknowledged or sent", timeout)
        self._is_over = True

    async def wait_ended(self, *, timeout: float | None = None) -> None:
        """Waits for the connection's end.

        Raises:
            LinkTimeout: It has not ended in time.
        """
        if not await ready(partial(self._core.wait_async, "end"), timeout):
            raise late("the connection did not end", timeout)

    async def _send(self, batch: MicroMsgBatch, timeout: float | None) -> int:
        deadline = deadline_in(timeout)
        while (position := self._core.try_send(batch)) is None:
            if not await ready(
                partial(self._core.wait_async, "room", number=batch.next_bytes),
                left_until(deadline),
            ):
                raise late("there was no room for a message", timeout)
        return position

    async def _wait_room(self, size: int, deadline: float | None, timeout: float | None) -> None:
        if not await ready(
            partial(self._core.wait_async, "frame", number=size), left_until(deadline)
        ):
            raise late("there was no room to send it", timeout)

    async def _leave(self, *, failed: bool) -> None:
        try:
            if self._is_over:
                return
            if not failed and not self._core.ended:
                await self._close_patiently()
            elif loss := self._loss():
                tell_loss(loss, failed=failed)
        finally:
            self.abort()

    async def _close_patiently(self) -> None:
        try:
            await self.close(timeout=PATIENCE)
        except LinkTimeout:
            if loss := self._loss():
                raise loss from None
        except (LinkClosed, TransportError):
            # Where everything is acknowledged, it does not matter how the connection ended.
            if not self.window or self._loss():
                raise


class Listener(AcceptingListener[MicroMsgConnection, Connection]):
    """Hands out each connection once, before its handshake has ended.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> async with listen("micromsg://127.0.0.1:8334") as listener:  # doctest: +SKIP
        ...     async with await listener.accept() as connection:
        ...         async for message in connection:
        ...             print(message.destination, message.properties, message.payload)
    """

    def _connection(self, core: MicroMsgConnection) -> Connection:
        return Connection(core)


async def _connected(doing: PendingOp, timeout: float | None) -> Connection:
    if not await ready(doing.wait_async, timeout):
        raise late("the connection was not made", timeout)
    return Connection(doing.take())
