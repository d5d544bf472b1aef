"""The options of the sink: their names, their defaults, and their checks.

No Spark here: the process that plans refuses wrong options of a sink, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ackline import _core
from ackline._table import HANDED_OVER, nearest, rows
from ackline.exceptions import UsageError
from ackline.spark.message_columns import DESTINATION, PROPERTIES, message_columns
from ackline.spark.values import count, flag, size, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

Native = int | float | str | bool | tuple[tuple[str, str], ...] | None
"""The value of an option of a native sink."""

DEFAULT_TIMEOUT: Final = 120
"""Seconds without an acknowledgement after which a task fails: receivers restart in less."""

MAX_TIMEOUT: Final = 86_400
"""The longest timeout: a day."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of `write.format("ackline")` or `writeStream.format("ackline")`.

    Attributes:
        url: The URLs of the receivers.
        protocol: The receivers' protocol: lumberjack, relink, bpmux, reactive or micromsg.
        raw: Whether the one column is an event's text, unchanged.
        metadata: Whether each event has query, batch, partition and ordinal.
        native: Further options of the native sink, by its names.
    """

    url: str
    protocol: str
    raw: bool
    metadata: bool
    native: tuple[tuple[str, Native], ...]


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    known_names = {name.lower() for name in (*NAMES, *_OF_SPARK)}
    for name in given:
        if name.lower() not in known_names and not name.lower().startswith(_CONNECT):
            raise unknown("the sink of format('ackline')", name, NAMES)
    options = {name.lower(): value.strip() for name, value in given.items()}
    payload = options.get("payload", "json").lower()
    if payload not in ("json", "raw"):
        raise UsageError(f"payload must be json or raw, not {payload!r}")
    metadata = flag(options, "metadata", default=False)
    if metadata and payload == "raw":
        message = (
            "metadata=true adds a member to each event and payload=raw leaves events as they are"
        )
        raise UsageError(message)
    timeout = count(options, "timeout", MAX_TIMEOUT) or DEFAULT_TIMEOUT
    url = _url(options)
    protocol = _protocol(url)
    native: dict[str, Native] = {
        "raw": payload == "raw",
        "keep_nulls": not flag(options, "ignoreNullFields", default=True),
        "timeout": timeout,
        "batch_events": count(options, "batch_events", _MOST_EVENTS.get(protocol, 1_000_000)),
        "batch_bytes": size(options, "batch_bytes"),
    }
    native = {name: value for name, value in native.items() if value}
    if protocol == "lumberjack":
        native |= _windows(options)
    else:
        _refuse_windows(options, protocol)
    if "goodbye" in options:
        native |= _goodbye(options["goodbye"], protocol)
    native |= message_columns(options, protocol)
    tls: dict[str, str] = {name: options[name] for name in _OF_TLS if name in options}
    tls |= _of_connect(options, protocol)
    return SinkOptions(
        url=url,
        protocol=protocol,
        raw=payload == "raw",
        metadata=metadata,
        native=tuple((native | tls).items()),
    )


def writes(given: Mapping[str, str]) -> bool:
    """Return whether options are a sink's, even without a `url`."""
    names = {name.lower() for name in given}
    return "url" in names or ("spool" not in names and not names.isdisjoint(_OF_SINKS))


def check_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Refuse options that a sink does not take; this reads files of TLS and connects to nothing.

    Raises:
        UsageError: Like `sink_options`, and for a URL or a file that cannot be used.
    """
    import pyarrow as pa

    options = sink_options(given)
    # The columns that a message's properties come from are known with the rows alone.
    has_columns = options.protocol == "micromsg"
    column = None if has_columns else pa.schema([pa.field("value", pa.binary())])
    check_native(options, dict(options.native), column)
    return options


def check_native(options: SinkOptions, native: dict[str, Any], schema: pa.Schema | None) -> None:
    """Refuse options and columns that the protocol's native sink does not take.

    Raises:
        UsageError: The text names the option or the column.
    """
    checks: dict[str, Callable[[str, dict[str, Any], Any], None]] = {
        "lumberjack": _core.LumberjackSink.check,
        "micromsg": _core.MicroMsgRows.check,
        "relink": _core.RelinkSink.check,
        "bpmux": _core.BpmuxRows.check,
        "reactive": _core.ReactiveRows.check,
    }
    checks[options.protocol](options.url, native, schema)


def _windows(options: Mapping[str, str]) -> dict[str, int | None]:
    chosen: dict[str, int | None] = {}
    in_flight = count(options, "max_in_flight", 1_000)
    if in_flight:
        chosen["max_in_flight"] = in_flight
    if "compression" in options:
        chosen["compression"] = _level(options)
    return chosen


def _refuse_windows(options: Mapping[str, str], protocol: str) -> None:
    for name in _OF_WINDOWS[protocol]:
        if name in options:
            other = _OTHER_WINDOWS.get(protocol, "")
            message = f"{name} is an option of windows, and {protocol}:// has no windows{other}"
            raise UsageError(message)


def _goodbye(reason: str, protocol: str) -> dict[str, str]:
    if protocol != "reactive":
        message = f"goodbye is an option of reactive://, and receivers of {protocol}:// acknowledge"
        raise UsageError(message)
    if not reason:
        message = "goodbye is the reason of a subscriber's goodbye that acknowledges the rows"
        raise UsageError(f"{message}: it is empty, and a goodbye without a reason always does")
    return {"goodbye": reason}


def _of_connect(options: Mapping[str, str], protocol: str) -> dict[str, str]:
    """Return the options of the protocol's `connect`, which are given as ``connect.NAME``."""
    call, chosen = f"{protocol}.connect", {}
    names = [name for name in rows(call) if name not in _SET_HERE]
    for given, text in options.items():
        if not given.startswith(_CONNECT):
            continue
        name = given.removeprefix(_CONNECT)
        if name not in names:
            plain = f" (write {name})" if name in NAMES else ""
            hint = plain or nearest(name, names, _CONNECT)
            raise UsageError(f"a sink of {protocol}:// has no option {given}{hint}")
        try:
            _core.check_option(call, name, text)
        except UsageError as error:
            raise UsageError(f"{_CONNECT}{error}") from None
        chosen[name] = text
    return chosen


def _url(options: Mapping[str, str]) -> str:
    url = options.get("url", "")
    if not url:
        message = (
            "the option url is missing: the receivers, such as lumberjack://host:5044,other:5044, "
            "relink://host:7000/NAME, bpmux://host:7000, reactive://host:5200/PUBLISHER or "
            "micromsg://host:8334/DESTINATION"
        )
        raise UsageError(message)
    return url


def _protocol(url: str) -> str:
    """Return the protocol of the receivers; refuse one that no sink supports.

    The parts after the first URL may be hosts alone.
    """
    spoken = []
    for one in url.split(","):
        scheme, found, _ = one.strip().partition("://")
        if found:
            spoken.append(scheme.partition("+")[0])
            if spoken[-1] not in _PROTOCOLS:
                raise UsageError(f'{scheme}://: there is no protocol "{scheme}"')
    return spoken[0] if spoken else "lumberjack"


def _level(options: Mapping[str, str]) -> int | None:
    text = options.get("compression", "3").lower()
    if text == "none":
        return None
    if text not in _LEVELS:
        raise UsageError(f"compression must be a level from 0 to 9 or none, not {text!r}")
    return int(text)


_OF_TLS: Final = ("ca", "crl", "cert", "key", "server_name", "token_file")
NAMES: Final = (
    "url",
    *_OF_TLS,
    "compression",
    "batch_events",
    "batch_bytes",
    "max_in_flight",
    "timeout",
    "payload",
    "ignoreNullFields",
    "metadata",
    "goodbye",
    DESTINATION,
    PROPERTIES,
)
_CONNECT: Final = "connect."
"""The text before the options of a protocol's `connect`."""
_SET_HERE: Final = {
    *NAMES,
    *HANDED_OVER,
    "buffer_bytes",
    "buffer_events",
    "credit",
    "parts",
    "receipts",
    "send_bytes",
    "send_window",
    "stuck_after",
    "wants_hints",
}
"""Options of `connect` that a sink sets itself, or takes without the text before them."""
# Options that no reader has.
_OF_SINKS = frozenset(name.lower() for name in NAMES) - {"payload"}
# Options that Spark itself hands on.
_OF_SPARK = ("checkpointLocation",)
_PROTOCOLS = ("lumberjack", "relink", "bpmux", "reactive", "micromsg")
# Half of all numbers of messages on a channel.
_MOST_EVENTS: Final = {"relink": (1 << 31) - 1}
# Options without an effect, by protocol.
_OF_WINDOWS: Final = {
    "relink": ("compression", "max_in_flight"),
    "bpmux": ("compression", "max_in_flight", "batch_events", "batch_bytes"),
    "reactive": ("compression", "max_in_flight", "batch_events", "batch_bytes"),
    "micromsg": ("compression", "max_in_flight", "batch_events", "batch_bytes"),
}
# A hint at the option of a protocol that is meant.
_OTHER_WINDOWS: Final = {
    "micromsg": " of events: connect.window limits the messages without an acknowledgement"
}
_LEVELS = tuple("0123456789")
