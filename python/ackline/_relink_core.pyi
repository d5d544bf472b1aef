"""Relink's part of the native module, for `ackline.relink`, `ackline.aio` and `ackline.sansio`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, final

from ackline._core import LoopWaker
from ackline.aio._wait import Standing

__all__ = [
    "RelinkBatch",
    "RelinkBinder",
    "RelinkConnecting",
    "RelinkHandshake",
    "RelinkLink",
    "RelinkListener",
    "RelinkMachine",
    "RelinkMessage",
    "RelinkPart",
    "RelinkReceipt",
    "relink_decode",
    "relink_encode",
]

@final
class RelinkBinder:
    """A listener's book of links, without I/O: what a connector that asks for an endpoint gets.

    Args:
        epoch: The listener instance, in microseconds since 1970.
        endpoints: For each endpoint's name the options ``connector_channel_id_size``,
            ``listener_channel_id_size``, ``connector_transactions``, ``listener_transactions``.
        next_link_id: The id of the next new link.
    """

    def __new__(
        cls,
        epoch: int,
        endpoints: Mapping[str, Mapping[str, int | bool]],
        next_link_id: int = ...,
    ) -> RelinkBinder: ...
    def decide(self, asked: Mapping[str, Any]) -> tuple[Literal["new", "old", "lost"], int, int]:
        """What the connector gets, with epoch and link id for `RelinkHandshake.accept`.

        Args:
            asked: The event ``requested``.

        Raises:
            ProtocolError: Its `code` is for `RelinkHandshake.refuse`.
        """
    def restore(self, endpoint_name: str, link_id: int) -> None:
        """Puts a link of an earlier process of this epoch back into the book."""
    def forget(self, link_id: int) -> None:
        """The link is over."""
    @property
    def links(self) -> list[int]:
        """The ids of the live links, ascending."""
    @property
    def next_link_id(self) -> int:
        """The id of the next new link."""

@final
class RelinkHandshake:
    """The handshake of one transport without I/O, made by `connector` or `listener`."""

    @staticmethod
    def connector(
        now: int,
        endpoint_name: str,
        options: Mapping[str, int | bool | None],
        old: tuple[int, int] | None = None,
    ) -> RelinkHandshake:
        """The connector's side.

        Args:
            now: The time.
            endpoint_name: The endpoint that is asked for.
            options: Channel id sizes and transactions as a `RelinkBinder`'s endpoint has them,
                ``require_old_link_id``, ``handshake_timeout_ms``.
            old: Epoch and link id of the link to go on with.
        """
    @staticmethod
    def listener(now: int, options: Mapping[str, int | None]) -> RelinkHandshake:
        """The listener's side; its option is ``handshake_timeout_ms``."""
    def receive(self, now: int, data: bytes) -> tuple[Literal["input", "room", "again"], int]:
        """Takes bytes that arrived; as `LumberjackReader.receive`."""
    def receive_eof(self, now: int) -> None:
        """The peer has ended its direction."""
    def poll_event(self) -> dict[str, Any] | None:
        """The next event: ``requested``, ``established`` or ``link_lost``, with its members."""
    def accept(self, now: int, epoch: int, link_id: int) -> None:
        """Answers ``requested`` with what `RelinkBinder.decide` returned.

        Raises:
            UsageError: ``not_requested``.
        """
    def refuse(self, now: int, code: str) -> None:
        """Ends the transport with what `RelinkBinder.decide` raised; the next `receive` raises it.

        Raises:
            UsageError: ``not_requested``, ``code``.
        """
    def poll_transmit(self, now: int) -> bytes:
        """Bytes to send now; empty when there are none."""
    def poll_timeout(self) -> int | None:
        """When `handle_timeout` wants to be called."""
    def handle_timeout(self, now: int) -> None:
        """Fires the timer if it is due.

        Raises:
            ProtocolError: The handshake took too long.
        """
    def reading(self, now: int, on: bool) -> None:
        """Says that reading stopped or resumed: meanwhile the peer's silence does not count."""
    def leftover(self) -> bytes:
        """The input behind the handshake, which is the link's; it is given out once."""
    @property
    def lifecycle(self) -> Literal["open", "draining", "closed", "handover"]:
        """Where it is in its life; ``handover``: the transport goes on with the link."""

@final
class RelinkMachine:
    """A link without I/O, which outlives its transports.

    Args:
        options: ``role`` (``connector`` or ``listener``), channel id sizes and transactions as a
            `RelinkBinder`'s endpoint has them, windows and limits by their names in
            `ackline.relink.connect`, ``ack_delay_ms``, ``ping_after_ms``, ``pong_timeout_ms``,
            ``packet_receive_timeout_ms``, ``max_events``, ``max_event_bytes``,
            ``close_when_consumed``, ``resume_from_consumed``, and ``channels`` that exist from the
            start: (``outgoing`` or ``incoming``, id, number of the next message) each.
        epoch: The listener instance.
        link_id: The link's id within it.
    """

    def __new__(cls, options: Mapping[str, Any], epoch: int, link_id: int) -> RelinkMachine: ...
    def attach(self, now: int, resumed: bool) -> None:
        """A handshake has agreed on this link, as a new one or `resumed`."""
    def detach(self, now: int) -> None:
        """The transport is gone."""
    def receive(self, now: int, data: bytes) -> tuple[Literal["input", "room", "again"], int]:
        """Takes bytes that arrived; as `LumberjackReader.receive`."""
    def receive_eof(self, now: int) -> None:
        """The peer has ended its direction."""
    def poll_event(self) -> dict[str, Any] | None:
        """The next event, by the names of the conformance vectors, with its members."""
    def poll_transmit(self, now: int) -> bytes:
        """Bytes to send now; empty when there are none."""
    def poll_timeout(self) -> int | None:
        """When `handle_timeout` wants to be called."""
    def handle_timeout(self, now: int) -> None:
        """Fires the timers that are due.

        Raises:
            ProtocolError: A deadline of the peer has passed: the transport is over.
        """
    def reading(self, now: int, on: bool) -> None:
        """Says that reading stopped or resumed: meanwhile the peer's silence does not count."""
    def send(self, now: int, channels: Sequence[bytes], payload: Sequence[bytes]) -> list[int]:
        """Sends a message of these parts on each of these channels; returns its numbers there.

        Raises:
            UsageError: ``window_full``, ``channel_closing``, ``shutting_down``, …
        """
    def consume(self, now: int, channel: bytes, through: int) -> None:
        """The messages of a channel up to this number are done with."""
    def notify_received(self, now: int, channel: bytes) -> None:
        """Tells the peer now what has arrived on its channel."""
    def commit(self, now: int, channel: bytes, through: int | None = None) -> int:
        """Commits own messages up to a number, or the next one; returns the last of them."""
    def rollback(self, now: int, channel: bytes, through: int | None = None) -> int:
        """Rolls own messages back, up to a number or the next one; returns the last of them."""
    def committed(self, now: int, channel: bytes, through: int | None = None) -> int:
        """The peer's commit up to a number, or the next one, succeeded; returns the last."""
    def uncommitted(self, now: int, channel: bytes, through: int | None = None) -> int:
        """The peer's commit up to a number, or the next one, failed; returns the last."""
    def close_channel(self, now: int, channel: bytes) -> None:
        """Ends an own channel."""
    def ping(self, now: int) -> None:
        """Asks for a sign of life; the event ``pong`` says how long it took."""
    def shutdown(self, now: int) -> None:
        """Opens no more channels; the peer is told when all own channels are closed."""
    def lose(self, now: int) -> None:
        """Gives the link up."""
    def send_room(self, channel: bytes) -> int:
        """Messages that may be sent on a channel now."""
    def unacknowledged(self) -> list[tuple[bytes, int, list[bytes]]]:
        """Messages not acknowledged as consumed: channel, number, parts; also after the end."""
    @property
    def key(self) -> tuple[int, int]:
        """Epoch and link id."""
    @property
    def state(
        self,
    ) -> Literal["connecting", "resuming", "up", "shutting_down", "closed", "lost"]:
        """Where the link is in its life."""
    @property
    def lifecycle(self) -> Literal["open", "draining", "closed", "handover"]:
        """Where its transport is in its life."""

def relink_decode(
    data: bytes,
    unit: str,
    sender: str,
    options: Mapping[str, int | bool],
) -> tuple[list[dict[str, Any]], int]:
    """The whole frames at the front of `data`, each as a dict, and how many bytes they are.

    Args:
        data: Bytes of one direction, from a frame's first byte on.
        unit: What they are: ``version``, ``endpoint``, ``ident`` or ``packet``.
        sender: Who sent them: ``connector`` or ``listener``.
        options: Channel id sizes, and limits by the names of `ackline.relink.connect`.

    Raises:
        ProtocolError: No continuation of these bytes is sound.
    """

def relink_encode(frames: Iterable[Mapping[str, Any]]) -> bytes:
    """The bytes of frames given as `relink_decode` gives them."""

_Stage: TypeAlias = Literal["kept", "received", "consumed", "committed"]
_Interest: TypeAlias = Literal[
    "message",
    "decision",
    "event",
    "room",
    "connected",
    "end",
    "pong",
    "kept",
    "acknowledged",
]
_Channel: TypeAlias = bytes | int
_Part: TypeAlias = bytes | bytearray | memoryview

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

@final
class RelinkBatch:
    """Messages that are checked and copied once.

    Args:
        payloads: Each bytes-like, or a sequence of parts; or an Arrow array of binary or strings.
    """

    def __new__(cls, payloads: Sequence[_Part | Sequence[_Part]] | _ArrowArray) -> RelinkBatch: ...
    def size(self, index: int) -> int:
        """Bytes of one of them."""
    def __len__(self) -> int: ...

@final
class RelinkPart:
    """One part of a received message, by the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@final
class RelinkMessage:
    """A received message. Its length is that of all its parts."""

    @property
    def channel(self) -> bytes:
        """The peer's channel."""
    @property
    def sequence(self) -> int:
        """Its number there: what `consume` takes."""
    @property
    def payload(self) -> bytes:
        """All parts, one behind the other; a copy, made once for one part of up to 1,024 bytes."""
    @property
    def parts(self) -> list[bytes]:
        """The parts; copies."""
    @property
    def buffers(self) -> list[memoryview]:
        """The parts without a copy; the memory stays while a view of it does."""
    def __len__(self) -> int: ...

@final
class RelinkReceipt:
    """How far a message that was sent has come."""

    @property
    def sequence(self) -> int:
        """The message's number on its channel."""
    @property
    def is_kept(self) -> bool:
        """Whether it is on the disk of this end."""
    @property
    def is_received(self) -> bool:
        """Whether the peer is known to have it."""
    @property
    def is_consumed(self) -> bool:
        """Whether the peer has consumed it."""
    def outcome(self) -> Literal["committed", "uncommitted", "rolled_back"] | None:
        """What became of it in a transactional direction.

        Raises:
            LinkClosed: It cannot be known any more.
            UsageError: ``forgotten``: so much was decided since that it is not kept.
        """
    def check(self) -> None:
        """Raises why nothing more is heard of it, if that is so."""
    def wait(self, stage: _Stage, timeout: float | None) -> bool:
        """Waits until a stage is reached or cannot be; False after `timeout` seconds."""
    def wait_async(self, stage: _Stage, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""

@final
class RelinkConnecting:
    """A link that is on its way. It begins to connect at its construction."""

    def __new__(
        cls, url: str, options: Mapping[str, Any], handed: bytes | None = None
    ) -> RelinkConnecting:
        """Connects, or goes on with the link whose state is `handed`."""
    def wait(self, timeout: float | None) -> bool:
        """Waits until it is decided; False after `timeout` seconds."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def take(self) -> RelinkLink | None:
        """The link, once; None while it is not there.

        Raises:
            TransportError: The listener could not be reached, or ended the handshake.
            UsageError: The URL or the state directory cannot be used.
        """

@final
class RelinkListener:
    """A listener. Listens from its construction on."""

    def __new__(cls, url: str, options: Mapping[str, Any]) -> RelinkListener: ...
    @property
    def url(self) -> str:
        """Where it listens, with the port that was chosen."""
    def try_accept(self) -> RelinkLink | None:
        """The next link, if one is there."""
    def wait(self, timeout: float | None) -> bool:
        """Waits for a link or the listener's end; False after `timeout` seconds."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def close(self) -> None:
        """Closes the socket; links that were handed out go on while their transports do."""
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    @property
    def links(self) -> int:
        """Links that are kept, with and without a transport."""

@final
class RelinkLink:
    """A link that survives its connections."""

    def try_send(
        self, channels: list[_Channel], message: RelinkBatch
    ) -> list[RelinkReceipt] | None:
        """Sends the one message of a batch on each channel; None without room."""
    def try_send_many(
        self, channel: _Channel, batch: RelinkBatch, start: int
    ) -> tuple[int, RelinkReceipt | None]:
        """Sends messages from `start` on while there is room: how many, and the last receipt."""
    def try_receive(self, max: int) -> list[RelinkMessage] | None:  # noqa: A002 (positional)
        """The messages that are there; None when no more can come.

        Raises:
            LinkLost: The link is lost, and every message was taken.
            LinkClosed: The link is closed, and every message was taken.
        """
    def consume(self, channel: _Channel, through: int) -> None:
        """Is done with the messages of the peer's channel up to a number."""
    def consume_many(self, messages: list[RelinkMessage]) -> None:
        """Is done with these messages and those before them on their channels."""
    def settle(
        self,
        verb: Literal["commit", "rollback", "committed", "uncommitted"],
        is_own: bool,
        channel: _Channel,
        through: int | None,
    ) -> int:
        """Decides on own messages, or answers the peer's commits; the number of the last one."""
    def notify_received(self, channel: _Channel) -> None:
        """Tells the peer now what has arrived on its channel."""
    def close_channel(self, channel: _Channel) -> None:
        """Closes an own channel once its messages are consumed."""
    def try_decided(self) -> tuple[bytes, Literal["commit", "rollback"], int] | None:
        """The peer's next decision: channel, operation, the last message."""
    def try_event(self) -> tuple[Any, bytes | None, int | None] | None:
        """The next event: its name, the channel, messages not acknowledged."""
    def ping(self) -> tuple[int, int]:
        """Sends a ping; its mark for `pong` and `wait`."""
    def pong(self, ping: tuple[int, int]) -> float | None:
        """Seconds from a ping to its pong, once it is there."""
    def begin_shutdown(self) -> None:
        """Opens no more channels, and closes the open ones."""
    def check(self) -> None:
        """Raises why the link is over, if it is."""
    def wait(
        self,
        interest: _Interest,
        timeout: float | None,
        channel: _Channel | list[_Channel] | None = None,
        size: int = 0,
        ping: tuple[int, int] = ...,
    ) -> bool:
        """Waits for `interest` or the link's end, with the interpreter released; takes nothing.

        Args:
            interest: ``message``, ``decision``, ``event``: one to be taken; ``room`` on `channel`
                for a message of `size` bytes; ``connected``: a transport; ``end`` of the link;
                ``pong`` of `ping`; ``kept``: all is on the disk; ``acknowledged``: all is consumed.
            timeout: Seconds; None waits for ever.
            channel: Where room is wanted; in a list once for each message.
            size: For how many bytes.
            ping: What `ping` returned.

        Returns:
            Whether it is there.
        """
    def wait_async(
        self,
        interest: _Interest,
        waker: LoopWaker,
        channel: _Channel | list[_Channel] | None = None,
        size: int = 0,
        ping: tuple[int, int] = ...,
    ) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def let_go(self) -> None:
        """Ends the link in this process."""
    def hand_over_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `hand_over`, without waiting; what came of it is for `handed_over`."""

    def handed_over(self) -> bytes | None:
        """The state of a link that was handed over; None if it was not.

        Raises:
            UsageError: As `hand_over`.
            LinkClosed: The link is over.
        """

    def hand_over(self, timeout: float | None) -> bytes:
        """Lets the link go when its peer has everything: its state, for another process."""
    def last_receipt(self, channel: bytes | int) -> RelinkReceipt | None:
        """The receipt of the last message on an own channel that is open."""
    def noted(self) -> int:
        """How many changes of the link there were.

        Raises:
            UsageError: ``not_kept``: it is not kept on disk.
        """
    def is_kept(self, noted: int) -> bool:
        """Whether so many of them are on disk.

        Raises:
            StateError: They could not be written.
            LinkClosed: The link ended before.
        """
    def discard(self) -> None:
        """Gives the link up, also on disk."""
    @property
    def is_gone(self) -> bool:
        """Whether it was let go."""
    @property
    def keeps(self) -> bool:
        """Whether it is kept on disk."""
    def unacknowledged(self) -> list[tuple[bytes, int, list[bytes]]]:
        """Messages sent and not acknowledged as consumed: channel, number, parts."""
    @property
    def key(self) -> tuple[int, int]:
        """Epoch and link id."""
    @property
    def state(
        self,
    ) -> Literal["connecting", "resuming", "up", "shutting_down", "closed", "lost"]:
        """Where the link is in its life."""
    @property
    def is_connected(self) -> bool:
        """Whether a transport carries it now."""
    @property
    def peer(self) -> tuple[str, str, dict[str, str], str] | None:
        """Name, identity and attributes of who made it, and the endpoint; at the listener's end."""
    @property
    def told(self) -> tuple[int | None, int | None, int | None, str | None]:
        """The members of `ackline.relink.Told`."""
    def stats(self) -> dict[str, int]:
        """The link's numbers."""
