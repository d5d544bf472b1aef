"""MicroMsg2: the parts that do not wait, for threads and for asyncio."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NamedTuple

from ackline._connections import Peer
from ackline._micromsg_core import MicroMsgConnection
from ackline._micromsg_core import MicroMsgFilter as Filter
from ackline._micromsg_core import MicroMsgMessage as Message
from ackline._micromsg_core import micromsg_read_properties as read_properties
from ackline._micromsg_core import micromsg_write_properties as write_properties
from ackline._micromsg_terms import JSON, Codec, Extension, Extensions, Proposal, listed, written
from ackline._payloads import Buffer
from ackline.exceptions import LinkClosed, LinkLost, UsageError

__all__ = [
    "ENDING",
    "LONGEST_NAME",
    "MOST_MESSAGES",
    "PATIENCE",
    "Arrival",
    "Codec",
    "Command",
    "ConnectionBase",
    "Extension",
    "Filter",
    "Message",
    "Outgoing",
    "Properties",
    "Proposal",
    "Sendable",
    "Subscribe",
    "Unsubscribe",
    "Value",
    "Where",
    "arrival",
    "queue_names",
    "read_properties",
    "where",
    "write_properties",
]

LONGEST_NAME: Final = 255
"""Characters of the name of a topic or a queue."""
MOST_MESSAGES: Final = 1024
"""Messages that are taken at once, at most."""
PATIENCE: Final = 10.0
"""Seconds that the end of a `with` block waits for acknowledgements."""
ENDING: Final = 5.0
"""Seconds that `fail` waits for the connection's end."""

Value = int | float | datetime | str
"""The value of a property. A datetime has a time zone."""
Properties = Mapping[str, Value]
"""Properties of a message by name: printable ASCII without a space and without ``: ; , =``."""


class Outgoing(NamedTuple):
    """A message to send."""

    payload: Buffer
    """Bytes, or anything else with a buffer of bytes."""
    destination: str = ""
    """The name of a topic or queue: ASCII, at most 255 characters."""
    properties: Properties | None = None
    """Its properties; 65,535 bytes on the wire at most."""
    dotnet_type: str | None = None
    """Its .NET type, if the extension ``dotnet`` was agreed on."""


Sendable = (
    Outgoing
    | tuple[Buffer]
    | tuple[Buffer, str]
    | tuple[Buffer, str, Properties | None]
    | tuple[Buffer, str, Properties | None, str | None]
    | Buffer
)
"""A message for `send_some`: a payload, or a tuple that begins as `Outgoing` does."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the peer that is no subscription."""

    name: str
    """Its name."""
    properties: dict[str, str] = field(default_factory=dict)
    """Its properties; of two with one name the first counts."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The peer subscribes to a topic or a queue; this replaces its subscription to it before."""

    topic: str
    """The name of the topic or queue."""
    filter: Filter | None = None
    """The filter that messages must match; None is every message."""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The peer ends a subscription."""

    topic: str
    """The name of the topic or queue."""


Arrival = Command | Subscribe | Unsubscribe
"""A command of the peer."""
_Arrived = tuple[str, list[tuple[str, str]]] | tuple[str, Filter | None] | str | Literal[False]


def arrival(arrived: _Arrived) -> Arrival | None:
    """Returns the command of a native one; None if no more come."""
    match arrived:
        case False:
            return None
        case str():
            return Unsubscribe(arrived)
        case (name, list(pairs)):
            properties: dict[str, str] = {}
            for key, value in pairs:
                properties.setdefault(key, value)
            return Command(name, properties)
        case (topic, condition):
            return Subscribe(topic, condition)


class Where:
    """The property that a condition of a filter is on; comparisons with it are filters.

    Numbers and dates have an order, texts have `startswith`, `endswith`, `contains` and `lacks`. A
    property that is missing, or of another type, fulfils ``!=`` and `lacks` alone.

    Args:
        name: The name of the property.

    Example:
        >>> str((where("level") >= 3) & where("path").startswith("/a b"))
        'level>=N3;path<T%2Fa%20b'
    """

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]  # `==` makes a filter

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return Filter.condition(self._name, "=", value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return Filter.condition(self._name, "!=", value)

    def __lt__(self, value: float | datetime) -> Filter:
        return self._ordered("<", value)

    def __le__(self, value: float | datetime) -> Filter:
        return self._ordered("<=", value)

    def __gt__(self, value: float | datetime) -> Filter:
        return self._ordered(">", value)

    def __ge__(self, value: float | datetime) -> Filter:
        return self._ordered(">=", value)

    def startswith(self, text: str) -> Filter:
        """A text that begins with this one."""
        return self._text("<", text)

    def endswith(self, text: str) -> Filter:
        """A text that ends with this one."""
        return self._text(">", text)

    def contains(self, text: str) -> Filter:
        """A text that contains this one."""
        return self._text("&", text)

    def lacks(self, text: str) -> Filter:
        """A text that does not contain this one; also a missing property, or one without text."""
        return self._text("~", text)

    def _ordered(self, operator: str, value: object) -> Filter:
        if isinstance(value, str):
            text = f"{self._name!r} is compared with a text, and texts have no order: "
            raise UsageError(f"{text}use startswith or endswith", "invalid_filter")
        return Filter.condition(self._name, operator, value)

    def _text(self, operator: str, text: object) -> Filter:
        if not isinstance(text, str):
            name = type(text).__name__
            raise UsageError(f"{self._name!r} is searched for {name}; give a str", "invalid_filter")
        return Filter.condition(self._name, operator, text)


def where(name: str) -> Where:
    """Begins a condition of a filter.

    Args:
        name: The name of the property: printable ASCII without a space and without
            ``: ; , = < > ! ~ &``.

    Returns:
        The property; its comparisons with values are filters.

    Example:
        >>> (where("level") >= 3).matches({"level": 2.5})
        False
    """
    return Where(name)


def queue_names(queues: Sequence[str]) -> str:
    """Returns the names of a broker's queues as its option takes them.

    Raises:
        UsageError: It is one name, and no sequence of names; or no destination can have a name.
    """
    if isinstance(queues, str):
        raise UsageError(f"queues is {queues!r}; it is a sequence of names", "queues")
    for name in queues:
        if not 0 < len(name) <= LONGEST_NAME or ";" in name:
            shown = json.dumps(name[:80])
            rule = f"a name has 1 to {LONGEST_NAME} characters, and no semicolon"
            raise UsageError(f"queues has {shown}: {rule}", option="queues")
    return ";".join(("queue/*", *queues))


class ConnectionBase:
    """One end of a connection, without its waits."""

    def __init__(self, core: MicroMsgConnection) -> None:
        self._core = core
        self._is_over = False
        """Whether this end has ended it."""
        self.codecs: dict[str, Codec] = {"json": JSON}
        """The formats of payloads by the extensions that stand for them, for `encode` and `decode`.

        Add those of ``protobuf``, ``xml`` and of your own.
        """

    @property
    def identity(self) -> str:
        """The name that the peer gives itself; may be empty.

        Raises:
            UsageError: ``handshake_incomplete``: at a listener's end, before `wait_connected`. The
                next three raise it too.
        """
        return self._agreed()[0]

    @property
    def version(self) -> tuple[int, int]:
        """The version that both ends speak, such as ``(1, 0)``."""
        return self._agreed()[1]

    @property
    def extensions(self) -> list[str]:
        """The names of the extensions that both ends agreed on, in the order of their numbers."""
        return self._agreed()[2]

    @property
    def agreed(self) -> tuple[Extension, ...]:
        """The same extensions with the properties that both ends agreed on."""
        self._agreed()
        return listed(self._core.agreed())

    @property
    def window(self) -> int:
        """Messages that may wait for their acknowledgement in each direction.

        It is 0 if there are no acknowledgements, and before the end of the handshake.
        """
        return self._core.window

    def answer(self, required: Extensions = "", optional: Extensions = "") -> None:
        """Answers what the peer proposes, with ``negotiation="manual"``.

        A listener's end requires and suggests extensions. A connector's end decides on those that
        are used, which have the numbers of their order. `fail` refuses the peer in place of it.

        Args:
            required: What is required, or decided on: a list as text, such as
                ``json;batch-ack:max-count=50``, or an iterable of such texts or `Extension`.
            optional: What is suggested, or decided on besides.

        Raises:
            UsageError: ``nothing_proposed``: the peer has proposed nothing that waits for an
                answer; ``invalid_answer``, with the reason; ``out_of_range``: a list has more than
                65,535 bytes.
            LinkClosed: The connection is over.
        """
        self._core.answer(written(required), written(optional))

    def encode(self, value: object) -> Buffer:
        """Makes a payload of a value, in the format that both ends agreed on.

        Args:
            value: What the codec takes; for ``json`` anything that `json.dumps` takes.

        Returns:
            The payload, for `send`.

        Raises:
            UsageError: ``extension_not_negotiated``: the handshake agreed on no extension of
                `codecs`. Raises also what the codec raises, for ``json`` a ValueError for NaN.
        """
        return self._codec().encode(value)

    def decode(self, of: Message | Buffer) -> object:
        """Makes a value of a message or a payload, in the format that both ends agreed on.

        Raises:
            UsageError: ``extension_not_negotiated``, as by `encode`. Raises also what the codec
                raises, for ``json`` a ValueError.
        """
        return self._codec().decode(
            bytes(memoryview(of.payload if isinstance(of, Message) else of))
        )

    def _codec(self) -> Codec:
        for name in self.extensions:
            if codec := self.codecs.get(name):
                return codec
        known = ", ".join(sorted(self.codecs))
        text = f"the handshake agreed on no extension with a codec; codecs has {known or 'none'}"
        raise UsageError(text, "extension_not_negotiated")

    def ack(self, up_to: Message | int) -> None:
        """Acknowledges all messages up to one, for ``ack_policy="manual"``.

        Args:
            up_to: The last of them, or its position.

        Raises:
            UsageError: ``out_of_range``: no such message was taken, or it was acknowledged before;
                ``extension_not_negotiated``: the connection has no acknowledgements;
                ``other_connection``: the message came over another one.
            LinkClosed: The connection is over.
        """
        self._core.ack(up_to)

    def abort(self) -> None:
        """Ends the connection at once. Messages that are not acknowledged may be lost."""
        self._is_over = True
        self._core.abort()

    @property
    def is_ended(self) -> bool:
        """Whether the connection is over, its transport too."""
        return self._core.ended

    @property
    def peer(self) -> Peer | None:
        """The connector; None at the connector's end."""
        peer = self._core.peer
        return None if peer is None else Peer(*peer)

    def stats(self) -> dict[str, int]:
        """The connection's numbers.

        Messages of this end since the beginning: ``sent``, and ``acknowledged`` of them. Now:
        ``pending`` messages wait for their acknowledgement, and ``waiting_bytes`` wait for the
        transport. Since the beginning: ``bytes_in`` and ``bytes_out`` of the transport.
        """
        return self._core.stats()

    def _agreed(self) -> tuple[str, tuple[int, int], list[str]]:
        agreed = self._core.connected()
        if agreed is None:
            text = "the handshake has not ended yet: call wait_connected first"
            raise UsageError(text, "handshake_incomplete")
        return agreed

    def _loss(self) -> LinkClosed | None:
        """Returns the error for messages that are lost if the connection ends now."""
        stats = self._core.stats()
        pending, waiting = stats["pending"], stats["waiting_bytes"]
        if pending:
            return LinkLost(
                f"the connection was cut off at the end of its block: {pending} messages are not "
                f"acknowledged. Call close(timeout=...) in the block to wait longer than "
                f"{PATIENCE:g} s",
                pending,
            )
        if waiting:
            return LinkClosed(
                "the connection was cut off at the end of its block: "
                f"{waiting} bytes of messages were not sent"
            )
        return None
