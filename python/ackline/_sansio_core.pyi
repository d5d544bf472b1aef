"""The bare machines of the native module.

Made by `.ci/sansio-types` from the descriptions of the protocols.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar, Unpack, final, overload

from ackline.sansio.types import (
    BpmuxEndpointEvent,
    BpmuxEndpointOptions,
    LumberjackReaderEvent,
    LumberjackReaderOptions,
    LumberjackWriterEvent,
    LumberjackWriterOptions,
    MicromsgClientEvent,
    MicromsgClientOptions,
    MicromsgServerEvent,
    MicromsgServerOptions,
    ReactiveClientEvent,
    ReactiveClientOptions,
    ReactiveServerEvent,
    ReactiveServerOptions,
    RelinkConnectorEvent,
    RelinkConnectorOptions,
    RelinkListenerEvent,
    RelinkListenerOptions,
)

__all__ = ["Machine", "sansio_decode", "sansio_describe", "sansio_encode", "sansio_protocols"]

_Event_co = TypeVar("_Event_co", covariant=True)

@final
class Machine(Generic[_Event_co]):
    """One end of a protocol without I/O.

    Args:
        protocol: A name of `ackline.sansio.protocols`.
        role: One of its roles.
        now: The time, in milliseconds.
        options: The options of the role; timers are in milliseconds, and off unless given.

    Raises:
        UsageError: The protocol, the role or an option is not understood.
    """

    @overload
    def __new__(
        cls,
        protocol: Literal["bpmux"],
        role: Literal["endpoint"],
        /,
        now: int = 0,
        **options: Unpack[BpmuxEndpointOptions],
    ) -> Machine[BpmuxEndpointEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["lumberjack"],
        role: Literal["reader"],
        /,
        now: int = 0,
        **options: Unpack[LumberjackReaderOptions],
    ) -> Machine[LumberjackReaderEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["lumberjack"],
        role: Literal["writer"],
        /,
        now: int = 0,
        **options: Unpack[LumberjackWriterOptions],
    ) -> Machine[LumberjackWriterEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["micromsg"],
        role: Literal["client"],
        /,
        now: int = 0,
        **options: Unpack[MicromsgClientOptions],
    ) -> Machine[MicromsgClientEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["micromsg"],
        role: Literal["server"],
        /,
        now: int = 0,
        **options: Unpack[MicromsgServerOptions],
    ) -> Machine[MicromsgServerEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["reactive"],
        role: Literal["client"],
        /,
        now: int = 0,
        **options: Unpack[ReactiveClientOptions],
    ) -> Machine[ReactiveClientEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["reactive"],
        role: Literal["server"],
        /,
        now: int = 0,
        **options: Unpack[ReactiveServerOptions],
    ) -> Machine[ReactiveServerEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["relink"],
        role: Literal["connector"],
        /,
        now: int = 0,
        **options: Unpack[RelinkConnectorOptions],
    ) -> Machine[RelinkConnectorEvent]: ...
    @overload
    def __new__(
        cls,
        protocol: Literal["relink"],
        role: Literal["listener"],
        /,
        now: int = 0,
        **options: Unpack[RelinkListenerOptions],
    ) -> Machine[RelinkListenerEvent]: ...
    def call(self, now: int, verb: str, /, **arguments: object) -> Any:  # noqa: ANN401 (by verb)
        """Calls a verb of the role; returns its result, if it has one.

        Raises:
            UsageError: The verb or an argument is not understood, or the machine refuses.
        """
    def receive(self, now: int, data: bytes) -> tuple[Literal["input", "room", "again"], int]:
        """Takes bytes that arrived.

        Returns:
            Its need: ``input`` (at least so many bytes), ``room`` (take events, or settle them,
            then call with no bytes), ``again`` (send the output, then call with no bytes).

        Raises:
            ProtocolError: The peer broke a rule or a limit; raised again by later calls.
        """
    def receive_eof(self, now: int) -> None:
        """Takes note that the peer has ended its direction.

        Raises:
            ProtocolError: The end came where the protocol does not allow one.
        """
    def poll_event(self) -> _Event_co | None:
        """Returns the next event: a dict of ``event``, its name, and its members."""
    def poll_transmit(self, now: int) -> bytes:
        """Returns bytes to send now; empty when there are none."""
    def poll_timeout(self) -> int | None:
        """Returns the time at which `handle_timeout` is to be called."""
    def handle_timeout(self, now: int) -> None:
        """Fires the timers that are due.

        Raises:
            ProtocolError: A deadline of the peer has passed.
        """
    def reading(self, now: int, on: bool) -> None:
        """Says that reading stopped or resumed: meanwhile the peer's silence does not count."""
    def select(self, connection: int) -> None:
        """Chooses the transport that the following calls are about; only Relink has several."""
    @property
    def connections(self) -> int:
        """The highest number of a transport so far."""
    @property
    def lifecycle(self) -> Literal["open", "draining", "closed", "handover"]:
        """The state of the transport; ``draining``: send everything, then end the own direction."""

def sansio_decode(
    protocol: str, data: bytes, sender: str | None = None, **options: object
) -> tuple[list[dict[str, Any]], int]:
    """Returns the whole frames at the front of `data`, each as a dict, and their length in bytes.

    Args:
        protocol: A name of `ackline.sansio.protocols`.
        data: Bytes of one direction, from a frame's first byte on; or the whole of a text, if the
            options say that the bytes are one.
        sender: The role that sent them, if the protocol has several; by default the first.
        options: Limits, and anything else that `describe` lists under ``decoding``.

    Raises:
        ProtocolError: No continuation of these bytes is sound.
        UsageError: The protocol, the sender or an option is not understood.
    """

def sansio_encode(protocol: str, frames: Iterable[Mapping[str, Any]], **options: object) -> bytes:
    """Returns the bytes of frames given as `sansio_decode` gives them.

    Args:
        protocol: A name of `ackline.sansio.protocols`.
        frames: The frames.
        options: Those of `sansio_decode`.

    Raises:
        UsageError: The protocol, a frame, a member or an option is not understood.
    """

def sansio_describe(protocol: str) -> dict[str, Any]:
    """Returns the roles with options, verbs and events, the frames, and the decoder's options.

    Raises:
        UsageError: The protocol is not understood.
    """

def sansio_protocols() -> list[str]:
    """Returns the names of the protocols that are built."""
