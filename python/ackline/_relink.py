"""What Relink's links for threads and for asyncio share: all that does not wait."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ackline._closing import CLOSING_SECONDS, tell_loss
from ackline._payloads import Payload, Payloads
from ackline._relink_core import RelinkBatch, RelinkLink, RelinkListener, RelinkReceipt
from ackline._relink_core import RelinkMessage as Message
from ackline.exceptions import LinkClosed, LinkLost, LinkTimeout, Unacknowledged, UsageError

__all__ = [
    "Channel",
    "Decision",
    "Event",
    "LinkBase",
    "ListenerBase",
    "Message",
    "Outcome",
    "Peer",
    "ReceiptBase",
    "Stage",
    "State",
    "batch_of",
    "handed_over",
    "options_of",
]

_MOST_MESSAGES = 1 << 31
"""No window holds more."""
Channel = bytes | int
"""A channel's id; a number is its bytes in little-endian order."""
Outcome = Literal["committed", "uncommitted", "rolled_back"]
"""What became of a message in a transactional direction."""
Stage = Literal["kept", "received", "consumed"]
"""What a receipt waits for."""
State = Literal["connecting", "resuming", "up", "shutting_down", "closed", "lost"]
"""Where a link is in its life."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The peer's decision on messages that it sent in a transactional direction."""

    channel: bytes
    """The peer's channel."""
    operation: Literal["commit", "rollback"]
    """Whether they are to be processed, or ignored."""
    through: int
    """The last of the messages; the first follows those decided before."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a link beside its messages."""

    name: Literal[
        "connected",
        "reconnected",
        "disconnected",
        "resumed",
        "closing",
        "closed",
        "peer_shutdown",
    ]
    """``resumed``: the peer has told what it had got before the cut. ``closing``: the peer closes
    its channel. ``closed``: an own channel is closed. ``peer_shutdown``: it opens no more."""
    channel: bytes | None = None
    """The channel of ``closing`` and ``closed``."""
    unacknowledged: int | None = None
    """The messages of a ``closed`` channel that were never acknowledged as consumed."""


@dataclass(frozen=True, slots=True)
class Told:
    """The listener's limits as it has told them; None is not told."""

    transaction_bytes: int | None
    """Bytes that messages of the link may have that are not decided, with 64 for each."""
    receive_window: int | None
    """Messages of one channel that may be sent and not consumed."""
    message_bytes: int | None
    """Bytes of a message."""
    refused: str | None
    """Why a transaction is refused."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who made a link of a listener's."""

    name: str
    """The connector's address."""
    sender: str
    """Its identity: ``tls:`` and the subject of its certificate, else its address."""
    attributes: dict[str, str]
    """What else is known of it, such as ``tls.fingerprint``."""
    endpoint: str
    """The endpoint that it asked for."""


class ReceiptBase:
    """A receipt without its waits."""

    def __init__(self, core: RelinkReceipt) -> None:
        self._core = core

    @property
    def sequence(self) -> int:
        """The message's number on its channel."""
        return self._core.sequence

    @property
    def is_kept(self) -> bool:
        """Whether it is on the disk of this end, in `state`; never without it."""
        return self._core.is_kept

    @property
    def is_received(self) -> bool:
        """Whether the peer is known to have it; it says so after a cut, and when it consumes."""
        return self._core.is_received

    @property
    def is_consumed(self) -> bool:
        """Whether the peer has consumed it, and all before it on its channel."""
        return self._core.is_consumed

    @property
    def outcome(self) -> Outcome | None:
        """What became of it in a transactional direction; None while that is not known.

        Raises:
            LinkClosed: It cannot be known any more.
        """
        return self._core.outcome()

    def _is_there(self, stage: Stage) -> bool:
        is_there: bool = getattr(self, f"is_{stage}")
        if not is_there:
            self._core.check()
        return is_there

    def _too_late(self, stage: str, timeout: float | None) -> LinkTimeout:
        return LinkTimeout(f"message {self.sequence} was not {stage} within {timeout} s")


_R = TypeVar("_R", bound=ReceiptBase)


class LinkBase(Generic[_R]):
    """A link without its waits."""

    _receipt: type[_R]

    def __init__(self, core: RelinkLink) -> None:
        self._core = core
        # Whether `close` has told what is not acknowledged, and whether that is kept on the disk.
        self._is_told = self._is_safe = False
        # Taken from the link by an iteration, not handed out yet.
        self._ahead: deque[Message] = deque()

    @property
    def key(self) -> tuple[int, int]:
        """The listener's epoch and the link's id: the same at both ends."""
        return self._core.key

    @property
    def state(self) -> State:
        """Where the link is in its life; ``closed`` also when it has ended in this process alone.

        That is after `close`, `hand_over`, or a `StateError`.
        """
        return self._core.state

    @property
    def is_connected(self) -> bool:
        """Whether a transport carries the link now."""
        return self._core.is_connected

    @property
    def peer(self) -> Peer | None:
        """Who made the link; None at the connector's end."""
        peer = self._core.peer
        return None if peer is None else Peer(*peer)

    @property
    def unacknowledged(self) -> list[Unacknowledged]:
        """Messages not acknowledged as consumed: channels ascending, each in order."""
        left = self._core.unacknowledged()
        return [Unacknowledged(channel, number, tuple(parts)) for channel, number, parts in left]

    def _let_go(self) -> list[Unacknowledged]:
        """Lets the link go: what was not acknowledged, whichever call of `close` came first."""
        self._is_told = True
        try:
            left = self.unacknowledged
        except LinkLost as lost:
            return list(lost.messages)
        except LinkClosed:
            return []
        self._core.let_go()
        return left

    def _tell_lost(self, left: list[Unacknowledged], *, failed: bool) -> None:
        """Tells of messages that the end of a block has left unacknowledged and unkept."""
        if left and not self._is_safe:
            text = (
                f"{len(left)} messages are not acknowledged {CLOSING_SECONDS:g} s after the "
                "block's end: they may not have arrived. flush() inside the block waits for them, "
                "and close(), called there, returns them"
            )
            tell_loss(LinkLost(text, len(left), tuple(left)), failed=failed)

    @property
    def told(self) -> Told:
        """The listener's limits, and why it refuses a transaction, on the connection that there is.

        It tells them if `connect` has asked with ``wants_hints=True`` and it is an Ackline, before
        it answers a `ping`: nothing otherwise.
        """
        return Told(*self._core.told)

    def stats(self) -> dict[str, int]:
        """The link's numbers: messages and bytes, transports, resumes, channels, what waits."""
        return self._core.stats()

    def try_send(self, channel: Channel, payload: Payload) -> _R | None:
        """Sends a message now; None without room, which the windows and `send_bytes` leave.

        What it promises `Receipt.kept` and `Receipt.consumed` tell, as of `send`.

        Args:
            channel: One's own channel, which is opened if need be.
            payload: The message: bytes, or a sequence of parts. It is copied.

        Raises:
            UsageError: ``invalid_channel_id``, ``channel_closing``, ``shutting_down``,
                ``message_too_large``.
            LinkLost: The link is lost.
            LinkClosed: The link is closed.
        """
        sent = self._try_send([channel], batch_of([payload]))
        return self._receipt(sent[0]) if sent else None

    def try_send_many(self, channel: Channel, payloads: Payloads) -> tuple[int, _R | None]:
        """Sends as many of the messages, in order, as there is room for now.

        Returns:
            How many were sent, and the receipt of the last of them.
        """
        sent, last = self._core.try_send_many(channel, batch_of(payloads), 0)
        return sent, None if last is None else self._receipt(last)

    def last_receipt(self, channel: Channel) -> _R | None:
        """The receipt of the last message on an own channel that is open.

        With `state` also of one that an earlier process sent, and that is consumed: an application
        goes on with the message behind its `sequence`, which wraps at 2^32. A channel that was
        closed begins again at 0, and so does a new link, whose `key` is another.

        Returns:
            None where no message was sent, or, of an earlier process, kept.
        """
        receipt = self._core.last_receipt(channel)
        return None if receipt is None else self._receipt(receipt)

    def consume(self, channel: Channel, through: int) -> None:
        """Is done with the messages of the peer's channel up to the number `through`.

        They leave the receive window, and the peer is told in time (`ack_delay`, `ack_window`); for
        a link with `state`, when that is on the disk.

        Raises:
            UsageError: ``unknown_channel``, or ``out_of_range``: it has not arrived, or was
                consumed.
            LinkClosed: The link is over.
        """
        self._core.consume(channel, through)

    def consume_many(self, messages: Sequence[Message]) -> None:
        """Is done with these messages and all before them on their channels; as `consume`.

        Raises:
            UsageError: ``other_link``: one of them came over another link. ``out_of_range``: also
                one of an earlier channel, which was closed. Nothing is consumed then.
            LinkClosed: The link is over.
        """
        self._core.consume_many(list(messages))

    def commit(self, channel: Channel, through: int | None = None) -> int:
        """Asks the peer to process own messages: those up to `through`, or the next one.

        Returns:
            The number of the last of them; their receipts tell the outcome.

        Raises:
            UsageError: ``transactions_disabled``, ``unknown_channel``, ``out_of_range``.
            LinkClosed: The link is over.
        """
        return self._core.settle("commit", True, channel, through)

    def rollback(self, channel: Channel, through: int | None = None) -> int:
        """Asks the peer to ignore own messages: those up to `through`, or the next one."""
        return self._core.settle("rollback", True, channel, through)

    def committed(self, channel: Channel, through: int | None = None) -> int:
        """Answers the peer's commit up to `through`, or of the next message: it succeeded.

        Returns:
            The number of the last message that is answered.

        Raises:
            UsageError: ``transactions_disabled``, ``unknown_channel``, ``out_of_range``.
            LinkClosed: The link is over.
        """
        return self._core.settle("committed", False, channel, through)

    def uncommitted(self, channel: Channel, through: int | None = None) -> int:
        """Answers the peer's commit up to `through`, or of the next message: it failed."""
        return self._core.settle("uncommitted", False, channel, through)

    def notify_received(self, channel: Channel) -> None:
        """Tells the peer now what has arrived on its channel."""
        self._core.notify_received(channel)

    def close_channel(self, channel: Channel) -> None:
        """Closes an own channel once its messages are consumed; a later message opens it again.

        Raises:
            UsageError: ``implicit_channel``, ``unknown_channel``, ``channel_closing``.
            LinkClosed: The link is over.
        """
        self._core.close_channel(channel)

    def try_decision(self) -> Decision | None:
        """The peer's next decision, if one is there."""
        decision = self._core.try_decided()
        return None if decision is None else Decision(*decision)

    def try_event(self) -> Event | None:
        """The next event, if one is there; the latest 1,024 wait to be taken."""
        event = self._core.try_event()
        return None if event is None else Event(*event)

    def discard(self) -> None:
        """Gives the link up, also what is kept of it on disk; `LinkLost` tells what was left."""
        self._core.discard()

    def _try_send(self, channels: Sequence[Channel], message: RelinkBatch) -> list[RelinkReceipt]:
        """The receipts; none without room."""
        return self._core.try_send(list(channels), message) or []

    def _try_receive(self, max_messages: int) -> list[Message]:
        """The messages that are there; raises when no more can come."""
        given: object = max_messages
        if not isinstance(given, int) or given < 1:
            wrong = f"max_messages is {max_messages!r}; it is a whole number of at least 1"
            raise UsageError(wrong, "max_messages")
        if self._ahead:
            count = min(max_messages, len(self._ahead))
            return [self._ahead.popleft() for _ in range(count)]
        messages = self._core.try_receive(min(max_messages, _MOST_MESSAGES))
        if messages is None:
            raise LinkClosed("the peer has shut down: no more messages come")
        return messages

    def _no_room(self, sent: int, timeout: float | None) -> LinkTimeout:
        return LinkTimeout(f"no room within {timeout} s; {sent} messages of the call were sent")


class ListenerBase:
    """A listener without its waits."""

    def __init__(self, core: RelinkListener) -> None:
        self._core = core

    @property
    def url(self) -> str:
        """Where it listens, with the port that was chosen."""
        return self._core.url

    @property
    def links(self) -> int:
        """Links that are kept, with and without a transport."""
        return self._core.links

    def _try_accept(self) -> RelinkLink | None:
        link = self._core.try_accept()
        if link is None and self._core.closed:
            raise LinkClosed("the listener is closed")
        return link


def options_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments as options: without the URL."""
    return {name: value for name, value in arguments.items() if name != "url"}


def batch_of(payloads: Payloads) -> RelinkBatch:
    """Messages that are checked and copied once."""
    return RelinkBatch(payloads)


def handed_over(state: object) -> bytes:
    """The state of a link for `adopt`.

    Raises:
        TypeError: It is no bytes.
    """
    if not isinstance(state, bytes):
        message = f"state is a {type(state).__name__}; it is the bytes that Link.hand_over returned"
        raise TypeError(message)
    return state
