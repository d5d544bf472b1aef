"""Messages of MicroMsg2 as lines of JSON: those that are published, and those that came."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ackline import micromsg
from ackline._table import nearest
from ackline.cli.terminal import escaped
from ackline.cli.values import instant
from ackline.exceptions import UsageError

__all__ = ["LineMessage", "Properties", "WrongLine", "line_of", "message_of"]

Properties = dict[str, int | float | str | datetime]
"""Properties by their names."""
_MEMBERS = ("destination", "properties", "payload", "payload_hex", "dotnet_type", "position")
"""The members of a line. The position is that of a message that came, and is passed over."""
_DATE = "date"
"""The member of a value that is a date."""


class WrongLine(ValueError):  # noqa: N818 (its subject)
    """A line is no message; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class LineMessage:
    """A message to be published.

    Attributes:
        payload: Its payload.
        destination: Its destination; None if the line has none.
        properties: Its own properties.
        dotnet_type: Its .NET type.
    """

    payload: bytes
    destination: str | None = None
    properties: Properties = field(default_factory=dict)
    dotnet_type: str | None = None


def line_of(message: micromsg.Message) -> bytes:
    """Returns a received message as a line of JSON, fit for a terminal."""
    line: dict[str, Any] = {"position": message.position, "destination": message.destination}
    try:
        line["properties"] = {name: _shown(value) for name, value in message.properties.items()}
    except UsageError:
        # Properties of the peer that nobody can read stay as they came.
        line["raw_properties"] = message.raw_properties
    if message.dotnet_type is not None:
        line["dotnet_type"] = message.dotnet_type
    try:
        line["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        line["payload_hex"] = message.payload.hex()
    return escaped(json.dumps(line)).encode() + b"\n"


def message_of(line: bytes) -> LineMessage:
    """Returns the message of a line.

    Raises:
        WrongLine: It is none.
    """
    try:
        members = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WrongLine(f"not JSON: {error}") from None
    if not isinstance(members, dict):
        raise WrongLine("not a JSON object")
    for name in members:
        if name not in _MEMBERS:
            raise WrongLine(f"there is no member {name!r}{nearest(name, _MEMBERS)}")
    return LineMessage(
        payload=_payload(members),
        destination=_text(members, "destination"),
        properties=_properties(members.get("properties")),
        dotnet_type=_text(members, "dotnet_type"),
    )


def _shown(value: float | str | datetime) -> object:
    if isinstance(value, datetime):
        return {_DATE: value.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    return value


def _payload(members: Mapping[str, Any]) -> bytes:
    text, digits = _text(members, "payload"), _text(members, "payload_hex")
    if (text is None) == (digits is None):
        raise WrongLine("it has either payload or payload_hex")
    try:
        return text.encode() if text is not None else bytes.fromhex(digits or "")
    except UnicodeEncodeError:
        raise WrongLine("payload has half of a surrogate pair: use payload_hex") from None
    except ValueError:
        raise WrongLine("payload_hex is not hex") from None


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise WrongLine(f"{name} is a text, not {json.dumps(value)[:40]}")
    return value


def _properties(given: object) -> Properties:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise WrongLine("properties are an object")
    return {name: _value(name, value) for name, value in given.items()}


def _value(name: str, value: object) -> int | float | str | datetime:
    if isinstance(value, dict) and value.keys() == {_DATE} and isinstance(value[_DATE], str):
        at = instant(value[_DATE])
        if at is not None:
            return at
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        return value
    shown = json.dumps(value)[:40]
    forms = '{"date": "2026-01-31T12:00:00Z"}'
    raise WrongLine(f"property {name!r} is {shown}; it is a number, a text, or {forms}")
