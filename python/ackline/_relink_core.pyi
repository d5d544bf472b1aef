"""Relink's part of the native module, for `ackline.relink`, `ackline.aio` and `ackline.sansio`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final

__all__ = [
    "RelinkBinder",
    "RelinkHandshake",
    "RelinkMachine",
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
        next_link_id: int = 1,
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
