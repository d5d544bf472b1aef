"""The parts of Relink's links that do not wait: threads and asyncio share them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

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
]

_MOST_MESSAGES = 1 << 31
"""Messages that a receive window can hold."""
Channel = bytes | int
"""A channel's id; a number is its bytes in little-endian order."""
Outcome = Literal["committed", "uncommitted", "rolled_back"]
"""The outcome of a message in a transactional direction."""
Stage = Literal["kept", "received", "consumed"]
"""A stage of a message that a receipt can wait for."""
State = Literal["connecting", "resuming", "up", "shutting_down", "closed", "lost"]
"""The state of a link."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The peer's decision on messages that it sent in a transactional direction."""

    channel: bytes
    """The peer's channel."""
    operation: Literal["commit", "rollback"]
    """``commit``: the messages are to be processed; ``rollback``: ignored."""
    through: int
    """The last of the messages; the first follows those decided before."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a link beside its messages."""

    name: Literal[
        "connected",
        "reconnected",
        "disconnected",
        "resumed",
        "closing",
        "closed",
        "peer_shutdown",
    ]
    """``resumed``: the peer has listed the messages that it had before the cut. ``closing``: the
    peer closes its channel. ``closed``: an own channel is closed. ``peer_shutdown``: the peer opens
    no more channels."""
    channel: bytes | None = None
    """The channel of ``closing`` and ``closed``."""
    unacknowledged: int | None = None
    """The messages of a ``closed`` channel that were never acknowledged as consumed."""


@dataclass(frozen=True, slots=True)
class Told:
    """The limits that the listener has announced; None for a limit that it has not."""

    transaction_bytes: int | None
    """Bytes of undecided messages of the link; each message counts with 64 bytes added."""
    receive_window: int | None
    """Messages of one channel that may be sent and not consumed."""
    message_bytes: int | None
    """Bytes of a message."""
    refused: str | None
    """The reason for which transactions are refused."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The connector of a listener's link."""

    name: str
    """The connector's address."""
    sender: str
    """Its identity: ``tls:`` and the subject of its certificate, else its address."""
    attributes: dict[str, str]
    """Further facts, such as ``tls.fingerprint``."""
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
        """Whether it is in `state` on the disk of this end; False without `state`."""
        return self._core.is_kept

    @property
    def is_received(self) -> bool:
        """Whether the peer has confirmed that it has it: after a cut, or by consuming it."""
        return self._core.is_received

    @property
    def is_consumed(self) -> bool:
        """Whether the peer has consumed it, and all before it on its channel."""
        return self._core.is_consumed

    @property
    def outcome(self) -> Outcome | None:
        """The outcome in a transactional direction; None while it is not known.

        Raises:
            LinkClosed: The outcome cannot be known any more.
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
        # Whether `close` has returned the unacknowledged messages, and whether the disk has them.
        self._is_told = self._is_safe = False
        # Messages that an iteration has taken from the link and not handed out yet.
        self._ahead: deque[Message] = deque()

    @property
    def key(self) -> tuple[int, int]:
        """The listener's epoch and the link's id: the same at both ends."""
        return self._core.key

    @property
    def state(self) -> State:
        """The state of the link; ``closed`` also if it has ended in this process alone.

        It ends in this process alone by `close`, `hand_over`, or a `StateError`.
        """
        return self._core.state

    @property
    def is_connected(self) -> bool:
        """Whether a transport carries the link now."""
        return self._core.is_connected

    @property
    def peer(self) -> Peer | None:
        """The connector; None at the connector's end."""
        peer = self._core.peer
        return None if peer is None else Peer(*peer)

    @property
    def unacknowledged(self) -> list[Unacknowledged]:
        """Messages not acknowledged as consumed: channels ascending, each in order."""
        left = self._core.unacknowledged()
        return [Unacknowledged(channel, number, tuple(parts)) for channel, number, parts in left]

    def _let_go(self) -> list[Unacknowledged]:
        """Lets the link go; returns the unacknowledged messages, for every call of `close`."""
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
        """Reports messages that are neither acknowledged nor kept at the end of a block."""
        if left and not self._is_safe:
            text = (
                f"{len(left)} messages are not acknowledged {CLOSING_SECONDS:g} s after the "
                "block's end: they may not have arrived. flush() inside the block waits for them, "
                "and close(), called there, returns them"
            )
            tell_loss(LinkLost(text, len(left), tuple(left)), failed=failed)

    @property
    def told(self) -> Told:
        """The listener's limits on this connection, and its reason to refuse a transaction.

        A listener of Ackline announces them before it answers a `ping`, if `connect` has asked for
        them with ``wants_hints=True``. Otherwise all are None.
        """
        return Told(*self._core.told)

    def stats(self) -> dict[str, int]:
        """The link's numbers: messages, bytes, transports, resumes, channels, waiting messages."""
        return self._core.stats()

    def try_send(self, channel: Channel, payload: Payload) -> _R | None:
        """Sends a message now; returns None while the windows or `send_bytes` leave no room.

        `Receipt.kept` and `Receipt.consumed` report its progress, as with `send`.

        Args:
            channel: A channel of this end, which is opened if need be.
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

        With `state` an earlier process may have sent the message, which may be consumed already: an
        application goes on with the message after this `sequence`, which wraps at 2^32. A channel
        that was closed begins again at 0, and so does a new link, which has another `key`.

        Returns:
            The receipt; None if no message was sent, or none of an earlier process was kept.
        """
        receipt = self._core.last_receipt(channel)
        return None if receipt is None else self._receipt(receipt)

    def consume(self, channel: Channel, through: int) -> None:
        """Consumes the messages of the peer's channel up to the number `through`.

        They leave the receive window, and are acknowledged to the peer after `ack_delay` or for
        `ack_window` messages at once; with `state`, not before the disk has them as consumed.

        Raises:
            UsageError: ``unknown_channel``; ``out_of_range``: the message has not arrived, or was
                consumed before.
            LinkClosed: The link is over.
        """
        self._core.consume(channel, through)

    def consume_many(self, messages: Sequence[Message]) -> None:
        """Consumes these messages and all before them on their channels; as `consume`.

        Raises:
            UsageError: ``other_link``: a message came over another link. ``out_of_range``: also for
                a message of an earlier channel that was closed. After an error nothing is consumed.
            LinkClosed: The link is over.
        """
        self._core.consume_many(list(messages))

    def commit(self, channel: Channel, through: int | None = None) -> int:
        """Asks the peer to process messages of this end: those up to `through`, or the next one.

        Returns:
            The number of the last of them; their receipts tell the outcome.

        Raises:
            UsageError: ``transactions_disabled``, ``unknown_channel``, ``out_of_range``.
            LinkClosed: The link is over.
        """
        return self._core.settle("commit", True, channel, through)

    def rollback(self, channel: Channel, through: int | None = None) -> int:
        """Asks the peer to ignore messages of this end: those up to `through`, or the next one."""
        return self._core.settle("rollback", True, channel, through)

    def committed(self, channel: Channel, through: int | None = None) -> int:
        """Answers that the peer's commit up to `through`, or of the next message, has succeeded.

        Returns:
            The number of the last message that is answered.

        Raises:
            UsageError: ``transactions_disabled``, ``unknown_channel``, ``out_of_range``.
            LinkClosed: The link is over.
        """
        return self._core.settle("committed", False, channel, through)

    def uncommitted(self, channel: Channel, through: int | None = None) -> int:
        """Answers that the peer's commit up to `through`, or of the next message, has failed."""
        return self._core.settle("uncommitted", False, channel, through)

    def notify_received(self, channel: Channel) -> None:
        """Tells the peer now how many messages have arrived on its channel."""
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
        """Gives the link up, on the disk too; `LinkLost` then has the messages that were left."""
        self._core.discard()

    def _try_send(self, channels: Sequence[Channel], message: RelinkBatch) -> list[RelinkReceipt]:
        """Returns the receipts, or none without room."""
        return self._core.try_send(list(channels), message) or []

    def _try_receive(self, max_messages: int) -> list[Message]:
        """Returns the messages that have arrived; raises when no more can come."""
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
        """The URL that it listens on, with the chosen port."""
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


def batch_of(payloads: Payloads) -> RelinkBatch:
    """Checks and copies the messages, and returns them as a native batch."""
    return RelinkBatch(payloads)


def handed_over(state: object) -> bytes:
    """Checks the state of a link for `adopt`.

    Raises:
        TypeError: The state is not bytes.
    """
    if not isinstance(state, bytes):
        message = f"state is a {type(state).__name__}; it is the bytes that Link.hand_over returned"
        raise TypeError(message)
    return state
