"""Relink's part of the native module, for `ackline.relink` and `ackline.aio`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, final

from ackline._core import LoopWaker
from ackline.aio._wait import Standing

__all__ = [
    "RelinkBatch",
    "RelinkConnecting",
    "RelinkLink",
    "RelinkListener",
    "RelinkMessage",
    "RelinkPart",
    "RelinkReceipt",
]

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
        """Its number on that channel, for `consume`."""
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
    """The progress of a message that was sent."""

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
        """The outcome in a transactional direction.

        Raises:
            LinkClosed: It cannot be known any more.
            UsageError: ``forgotten``: too many later decisions came, so that this one is no longer
                kept.
        """
    def check(self) -> None:
        """Raises the reason why no more progress can come, if there is one."""
    def wait(self, stage: _Stage, timeout: float | None) -> bool:
        """Waits until a stage is reached or cannot be; False after `timeout` seconds."""
    def wait_async(self, stage: _Stage, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""

@final
class RelinkConnecting:
    """A link that is being made. It begins to connect at its construction."""

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
        """The URL that it listens on, with the chosen port."""
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
        """Sends messages from `start` on while there is room: their count, the last receipt."""
    def try_receive(self, max: int) -> list[RelinkMessage] | None:  # noqa: A002 (positional)
        """The messages that are there; None when no more can come.

        Raises:
            LinkLost: The link is lost, and every message was taken.
            LinkClosed: The link is closed, and every message was taken.
        """
    def consume(self, channel: _Channel, through: int) -> None:
        """Consumes the messages of the peer's channel up to a number."""
    def consume_many(self, messages: list[RelinkMessage]) -> None:
        """Consumes these messages and those before them on their channels."""
    def settle(
        self,
        verb: Literal["commit", "rollback", "committed", "uncommitted"],
        is_own: bool,
        channel: _Channel,
        through: int | None,
    ) -> int:
        """Decides on own messages, or answers the peer's commits; returns the last number."""
    def notify_received(self, channel: _Channel) -> None:
        """Tells the peer now what has arrived on its channel."""
    def close_channel(self, channel: _Channel) -> None:
        """Closes a channel of this end once its messages are consumed."""
    def try_decided(self) -> tuple[bytes, Literal["commit", "rollback"], int] | None:
        """The peer's next decision: channel, operation, the last message."""
    def try_event(self) -> tuple[Any, bytes | None, int | None] | None:
        """The next event: its name, the channel, messages not acknowledged."""
    def ping(self) -> tuple[int, int]:
        """Sends a ping; returns its mark for `pong` and `wait`."""
    def pong(self, ping: tuple[int, int]) -> float | None:
        """Seconds from a ping to its pong, once it is there."""
    def begin_shutdown(self) -> None:
        """Opens no more channels, and closes the open ones."""
    def check(self) -> None:
        """Raises the reason why the link is over, if it is."""
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
            channel: The channel that needs room; in a list once for each message.
            size: Bytes of room.
            ping: The mark from `ping`.

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
        """As `hand_over`, without waiting; `handed_over` then returns the result."""

    def handed_over(self) -> bytes | None:
        """The state of a link that was handed over; None if it was not.

        Raises:
            UsageError: As `hand_over`.
            LinkClosed: The link is over.
        """

    def hand_over(self, timeout: float | None) -> bytes:
        """Lets the link go when its peer has everything; returns its state."""
    def last_receipt(self, channel: bytes | int) -> RelinkReceipt | None:
        """The receipt of the last message on an own channel that is open."""
    def noted(self) -> int:
        """The number of changes of the link so far.

        Raises:
            UsageError: ``not_kept``: it is not kept on disk.
        """
    def is_kept(self, noted: int) -> bool:
        """Whether the first `noted` changes are on disk.

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
        """The state of the link."""
    @property
    def is_connected(self) -> bool:
        """Whether a transport carries it now."""
    @property
    def peer(self) -> tuple[str, str, dict[str, str], str] | None:
        """Name, identity and attributes of the connector, and the endpoint; for listeners."""
    @property
    def told(self) -> tuple[int | None, int | None, int | None, str | None]:
        """The members of `ackline.relink.Told`."""
    def stats(self) -> dict[str, int]:
        """The link's numbers."""
