"""bpmux's part of the native module, for `ackline.sansio`."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, final

__all__ = ["BpmuxMachine", "Target", "bpmux_decode", "bpmux_encode"]

Target: TypeAlias = Literal["top"] | tuple[Literal["own", "peer"], int]

@final
class BpmuxMachine:
    """One end of a connection without I/O; both ends are equal.

    Targets are ``"top"``, ``("own", id)`` for what this end opened and ``("peer", id)`` for what
    the peer opened. Payloads are bytes; they wait in the machine for their credit.

    Args:
        now: The time, in milliseconds.
        options: ``chunk_size`` (payload bytes of a chunk that is sent, 16,384), ``credit`` (None:
            by `grant_credit` alone; or floor, ceiling and budget of automatic windows, in bytes),
            ``max_payload_bytes`` (16 MiB), ``max_entities`` and ``max_requests`` (65,536) of the
            peer's, ``ping_after_ms``, ``pong_timeout_ms``, ``chunk_receive_timeout_ms`` (off).

    Raises:
        UsageError: An option is not understood.
    """

    def __new__(cls, now: int, options: Mapping[str, Any]) -> BpmuxMachine: ...
    def receive(self, now: int, data: bytes) -> tuple[Literal["input", "room", "again"], int]:
        """Takes bytes; what is needed next, and how many bytes of it.

        Raises:
            ProtocolError: The peer broke a rule or a limit; raised again by later calls.
        """
    def receive_eof(self, now: int) -> None:
        """The peer has ended its direction."""
    def poll_event(self) -> dict[str, Any] | None:
        """The next event: ``event`` and, by event, ``kind``, ``id``, ``target``, ``payload``."""
    def poll_transmit(self, now: int) -> bytes:
        """What is to be sent; empty when there is nothing more."""
    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is to be called."""
    def handle_timeout(self, now: int) -> None:
        """The timers that are due fire.

        Raises:
            ProtocolError: The peer was silent too long.
        """
    def reading(self, now: int, on: bool) -> None:
        """Reading was stopped or goes on: meanwhile the peer cannot be blamed for silence."""
    @property
    def lifecycle(self) -> Literal["open", "draining", "closed", "handover"]:
        """``draining``: send everything, end the own direction, drop what comes until the end."""
    def open(
        self, kind: Literal["sink", "stream", "duplex"], entity_id: int, payload: bytes = ...
    ) -> None:
        """Opens something under an id of this end's.

        Raises:
            UsageError: ``id_in_use``, ``top_level_closed``, ``closed``.
        """
    def free_id(self) -> int:
        """An id that `open` may be called with."""
    def free_request_id(self) -> int:
        """An id that `request` may be called with."""
    def send(self, target: Target, payload: bytes) -> None:
        """Sends a message, behind those before it, as credit comes.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``already_ended``,
                ``top_level_closed``, ``closed``.
        """
    def close(self, target: Target, payload: bytes = ...) -> None:
        """Closes what this end writes, behind its messages.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``already_ended``, ``closed``.
        """
    def cancel(self, target: Target, payload: bytes = ...) -> None:
        """Cancels what this end reads.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``already_ended``, ``closed``.
        """
    def request(self, request_id: int, payload: bytes) -> None:
        """Sends a request.

        Raises:
            UsageError: ``id_in_use``, ``top_level_closed``, ``closed``.
        """
    def cancel_request(self, request_id: int, payload: bytes = ...) -> None:
        """Gives an own request up.

        Raises:
            UsageError: ``unknown_id``, ``already_ended``, ``closed``.
        """
    def respond(self, request_id: int, payload: bytes) -> None:
        """Answers a request of the peer's.

        Raises:
            UsageError: ``unknown_id``, ``already_ended``, ``closed``.
        """
    def close_response(self, request_id: int, payload: bytes = ...) -> None:
        """Ends a request of the peer's without a response.

        Raises:
            UsageError: ``unknown_id``, ``already_ended``, ``closed``.
        """
    def grant_credit(self, target: Target, amount: int) -> None:
        """Gives the peer so many bytes of credit for what this end reads.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``already_ended``, ``credit_overflow``,
                ``closed``.
        """
    def consumed(self, target: Target, amount: int) -> None:
        """So many bytes that came were taken: with automatic credit the peer gets as much again."""
    def credit(self, target: Target) -> int:
        """Bytes that may be sent without waiting for credit.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``already_ended``, ``closed``.
        """
    def waiting(self, target: Target) -> int:
        """Bytes that were called to be sent and have not been.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``closed``.
        """
    def ping(self, target: Target) -> None:
        """Pings what this end reads, or the top-level; the event ``pong`` answers.

        Raises:
            UsageError: ``unknown_id``, ``wrong_direction``, ``already_ended``, ``closed``.
        """
    def ping_request(self, request_id: int) -> None:
        """Pings an own request; the event ``request_pong`` answers.

        Raises:
            UsageError: ``unknown_id``, ``already_ended``, ``closed``.
        """

def bpmux_decode(
    data: bytes, options: Mapping[str, int] | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The whole chunks at the front of `data`, and how many bytes they are.

    Args:
        data: Bytes from any chunk's start on.
        options: ``max_payload_bytes``.

    Raises:
        ProtocolError: No chunk begins so, or its payload is above the limit.
    """

def bpmux_encode(chunks: Iterable[Mapping[str, Any]]) -> bytes:
    """The smallest encoding of chunks as `bpmux_decode` gives them.

    Raises:
        UsageError: A chunk is not understood.
    """
