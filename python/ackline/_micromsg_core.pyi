"""The native module's MicroMsg2 part, for `ackline.micromsg` and `ackline.aio.micromsg`."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike
from typing import Any, Literal, NoReturn, TypeAlias, final

from ackline._bpmux_core import PendingOp
from ackline._core import LoopWaker
from ackline.aio._wait import Standing

__all__ = [
    "MicroMsgBatch",
    "MicroMsgBroker",
    "MicroMsgConnection",
    "MicroMsgFilter",
    "MicroMsgListener",
    "MicroMsgMessage",
    "PendingOp",
    "micromsg_connect",
    "micromsg_read_properties",
    "micromsg_serve",
    "micromsg_split",
    "micromsg_write_properties",
]

_Value: TypeAlias = int | float | datetime | str
_Command: TypeAlias = tuple[str, list[tuple[str, str]]]
_Extensions: TypeAlias = list[tuple[str, list[tuple[str, str]]]]
_Proposal: TypeAlias = tuple[str, tuple[int, int], _Extensions, _Extensions]
_Subscribe: TypeAlias = tuple[str, MicroMsgFilter | None]

def micromsg_connect(url: str, options: Mapping[str, Any]) -> PendingOp:
    """Begins to connect; the result is a `MicroMsgConnection` whose handshake has ended.

    With ``negotiation="manual"`` the server has proposed extensions instead.

    Raises:
        UsageError: An option is not understood.
    """

def micromsg_serve(
    url: str, spool: str | PathLike[str] | None, queues: str, options: Mapping[str, Any]
) -> PendingOp:
    """Begins to serve topics and queues; the result is a `MicroMsgBroker`.

    Raises:
        UsageError: An option is not understood.
    """

def micromsg_read_properties(raw: str) -> dict[str, _Value]:
    """Reads properties as they are on the wire, such as ``level:N3;region:Teu;``.

    Args:
        raw: The text; empty has none.

    Returns:
        The values by name: int or float, datetimes in UTC to the microsecond, and texts. A value
        without a type is a text. Of two with one name the first counts.

    Raises:
        UsageError: ``invalid_properties``, ``not_ascii``, ``invalid_percent_encoding``: the text
            cannot be read, or a date is outside the years 1 to 9999.
    """

def micromsg_split(url: str) -> tuple[str, str, str | None]:
    """Returns the URL without topic and filter, the topic, and the filter.

    The topic is empty, and the filter None, if the URL names none.

    Raises:
        UsageError: The URL is of another protocol, or the filter cannot be read.
    """

def micromsg_write_properties(properties: Mapping[str, _Value]) -> str:
    """Writes properties as they are on the wire.

    Args:
        properties: Values by name. A name has lower-case letters, digits and hyphens. An int is
            from -2^63 to 2^63-1, a float is finite, a datetime has a time zone.

    Returns:
        The text, such as ``level:N3;region:Teu;``.

    Raises:
        UsageError: ``invalid_name``, ``invalid_value``, ``out_of_range``, ``not_finite``.
    """

@final
class MicroMsgMessage:
    """A received message. It does not keep its connection open."""

    @property
    def position(self) -> int:
        """Its number among all messages of this direction of the connection, from 1."""
    @property
    def payload(self) -> bytes:
        """Its payload."""
    @property
    def destination(self) -> str:
        """The name of the topic or queue that it was sent to; may be empty."""
    @property
    def raw_properties(self) -> str:
        """Its properties as they came, such as ``level:N3;region:Teu;``; empty if it has none."""
    @property
    def properties(self) -> dict[str, _Value]:
        """Its properties, read at the first access.

        Numbers are int or float, dates are datetimes in UTC, everything else is a str. Of two with
        one name the first counts.

        Raises:
            UsageError: ``invalid_properties``, ``not_ascii``, ``invalid_percent_encoding``: the
                peer's text cannot be read; `raw_properties` has it.
        """
    @property
    def dotnet_type(self) -> str | None:
        """The .NET type that the sender named last; None if it named none."""
    def ack(self) -> None:
        """Acknowledges all messages up to this one, for ``ack_policy="manual"``.

        Raises:
            UsageError: ``out_of_range``: it was acknowledged before;
                ``extension_not_negotiated``: the connection has no acknowledgements.
            LinkClosed: The connection is over.
        """

@final
class MicroMsgFilter:
    """A filter of a subscription: conditions on properties, which all must hold.

    A condition is a name, an operator and a value with the letter of its type in front, such as
    ``level>=N3``; conditions are joined by semicolons. Types are ``N`` for numbers, ``D`` for
    dates in seconds since 1970, and ``T`` for percent-encoded text. Numbers and dates have ``=``,
    ``!=``, ``<``, ``<=``, ``>`` and ``>=``. Texts have ``=``, ``!=``, ``<`` (begins with), ``>``
    (ends with), ``&`` (contains) and ``~`` (does not contain), and are compared by case. A
    property that is missing, or of another type, fulfils ``!=`` and ``~`` alone.

    Its text is its canonical form, and ``&`` joins the conditions of two filters.

    Args:
        text: The filter.

    Raises:
        UsageError: ``invalid_filter``, ``not_ascii``, ``invalid_percent_encoding``, with the
            reason.

    Example:
        >>> from ackline.micromsg import Filter, where
        >>> Filter("level>=N3;region=Teu").matches({"level": 5, "region": "eu"})
        True
        >>> str((where("level") >= 3) & (where("region") == "eu"))
        'level>=N3;region=Teu'
    """

    def __new__(cls, text: str) -> MicroMsgFilter: ...
    @staticmethod
    def condition(name: str, operator: str, value: object) -> MicroMsgFilter:
        """A filter of one condition; `ackline.micromsg.where` writes it more readably.

        Args:
            name: The name of the property.
            operator: One of ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``&`` and ``~``.
            value: An int, a float, a datetime with a time zone, or a str.

        Raises:
            UsageError: ``invalid_filter``: the operator is not one for the type of the value;
                ``invalid_name``, ``invalid_value``, ``out_of_range``, ``not_finite``.
        """
    def matches(self, of: MicroMsgMessage | Mapping[str, _Value] | str) -> bool:
        """Returns whether all conditions hold for the properties of a message.

        Args:
            of: The message, its `raw_properties`, or properties as for `send`. An entry of raw
                properties that cannot be read counts as missing.

        Raises:
            UsageError: As by `write_properties`, for a mapping.
        """
    def __bool__(self) -> NoReturn:
        """Raises TypeError: ``and`` would drop a condition in silence; join filters by ``&``."""

    def __and__(self, other: MicroMsgFilter, /) -> MicroMsgFilter: ...
    def __rand__(self, other: MicroMsgFilter, /) -> MicroMsgFilter: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class MicroMsgBatch:
    """Messages that wait to be sent.

    Args:
        messages: Payloads, or tuples of payload, destination, properties and .NET type, of which
            the last ones may be missing.
    """

    def __new__(cls, messages: Iterable[object]) -> MicroMsgBatch: ...
    @staticmethod
    def one(
        payload: object,
        destination: str,
        properties: Mapping[str, _Value] | None,
        dotnet_type: str | None,
    ) -> MicroMsgBatch:
        """One message."""
    @property
    def next_bytes(self) -> int:
        """Bytes of the payload of the next message; 0 if all were sent."""

@final
class MicroMsgConnection:
    """One end of a connection; it ends when it is dropped."""

    def connected(self) -> tuple[str, tuple[int, int], list[str]] | None:
        """The peer's name, the version, and the extensions; None before the handshake's end."""
    def proposal(self) -> _Proposal | None:
        """The peer's proposal; None before it comes.

        Its name, the version, and the extensions that it requires and suggests.
        """
    def agreed(self) -> _Extensions:
        """The extensions of the connection; none before the end of the handshake."""
    def answer(self, required: str, optional: str) -> None:
        """Answers what the peer proposes."""
    @property
    def window(self) -> int:
        """Messages that may wait for their acknowledgement; 0 without acknowledgements."""
    def try_send(self, batch: MicroMsgBatch) -> int | None:
        """Sends as many messages as there is room for.

        Returns the position of the last one, 0 of none; None if some are left.
        """
    def try_acknowledged(self, position: int) -> bool:
        """Whether all messages up to a position are acknowledged."""
    def try_receive(self) -> MicroMsgMessage | Literal[False] | None:
        """The next message; None before it comes, False when no more come."""
    def try_receive_some(self, most: int) -> list[MicroMsgMessage] | None:
        """Messages that are there, up to `most`; None when no more come."""
    def ack(self, up_to: MicroMsgMessage | int) -> None:
        """Acknowledges all messages up to a message or a position."""
    def try_subscribe(self, topic: str, filter: str | None) -> bool:  # noqa: A002 (positional)
        """Subscribes; returns whether there was room."""
    def try_unsubscribe(self, topic: str) -> bool:
        """Ends a subscription; returns whether there was room."""
    def try_command(self, name: str, properties: list[tuple[str, str]]) -> bool:
        """Sends a command; returns whether there was room."""
    def try_receive_command(self) -> _Command | _Subscribe | str | Literal[False] | None:
        """The next command.

        A command has a list, a subscription a filter or None; the end of a subscription is its
        topic. None before it comes, False when no more come.
        """
    def try_send_extension(self, name: str, payload: object) -> bool:
        """Sends a frame of an extension; returns whether there was room."""
    def try_receive_extension(self) -> tuple[str, bytes] | Literal[False] | None:
        """The next frame of an extension; None before it comes, False when no more come."""
    def fail(self, message: str) -> None:
        """Ends it with an ERROR frame, behind everything that waits."""
    def close(self, timeout: float | None) -> PendingOp:
        """Waits for acknowledgements, sends everything that waits, and waits for the end."""
    def abort(self) -> None:
        """Ends it at once."""
    @property
    def ended(self) -> bool:
        """Whether it has ended."""
    @property
    def peer(self) -> tuple[str, str, dict[str, str]] | None:
        """Name, identity and attributes of the connector; None at the connector's end."""
    def stats(self) -> dict[str, int]:
        """Its current state, and counters of its transport."""
    def wait(self, interest: str, timeout: float | None, number: int = 0) -> bool:
        """Waits for an interest; returns whether it came in time.

        ``connected``, ``message``, ``command``, ``extension``, ``end``; ``room`` and ``frame`` for
        a message or a frame of so many bytes; ``acknowledged`` for all messages up to a position.
        """
    def wait_async(self, interest: str, waker: LoopWaker, number: int = 0) -> Standing[bool] | None:
        """Begins the same wait in an event loop; None if it is true now."""

@final
class MicroMsgBroker:
    """A broker; dropping it ends its connections at once."""

    @property
    def url(self) -> str:
        """The URL that it listens on, with the chosen port."""
    def stats(self) -> dict[str, Any]:
        """The current state, and totals since the start."""
    def refusals(self) -> list[str]:
        """The lines about connections that were refused since the last call."""
    def close(self, timeout: float | None) -> PendingOp:
        """Ends it in order."""
    def abort(self) -> None:
        """Ends it at once."""

@final
class MicroMsgListener:
    """A listener; dropping it closes the socket."""

    def __new__(cls, url: str, options: Mapping[str, Any]) -> MicroMsgListener: ...
    @property
    def url(self) -> str:
        """The URL that it listens on, with the chosen port."""
    def try_accept(self) -> MicroMsgConnection | None:
        """The next connection, if there is one."""
    def close(self) -> None:
        """Closes the socket; connections that were handed out go on."""
    @property
    def closed(self) -> bool:
        """Whether it is closed."""
    def stats(self) -> dict[str, Any]:
        """Health checks, and connections that were turned away by the reason's code."""
    def wait(self, timeout: float | None) -> bool:
        """Waits for a connection; returns whether one came in time."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """Begins the same wait in an event loop; None if one is there."""
