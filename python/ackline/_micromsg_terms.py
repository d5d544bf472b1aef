"""The agreement of MicroMsg2 on extensions, and the formats of payloads that it names."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ackline._payloads import Buffer
from ackline.exceptions import UsageError

__all__ = ["JSON", "Codec", "Extension", "Extensions", "Proposal", "listed", "proposed", "written"]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Extension(NamedTuple):
    """An extension that an end requires or suggests.

    Its text is its form in a handshake.

    Example:
        >>> str(Extension("batch-ack", {"max-count": "50"}))
        'batch-ack:max-count=50'
    """

    name: str
    """Its name, such as ``json`` or ``x-trace``."""
    properties: Mapping[str, str] = _NONE
    """Its properties; of two with one name the first counts."""

    def __str__(self) -> str:
        pairs = ",".join(f"{name}={quote(text, safe='')}" for name, text in self.properties.items())
        return f"{self.name}:{pairs}" if pairs else self.name


Extensions = str | Extension | Iterable[str | Extension]
"""Extensions: a list as text, such as ``json;batch-ack:max-count=50``, or each on its own."""


class Proposal(NamedTuple):
    """What a peer says in its handshake, with ``negotiation="manual"``."""

    identity: str
    """The name that the peer gives itself; may be empty."""
    version: tuple[int, int]
    """The version that both ends speak, such as ``(1, 0)``."""
    required: tuple[Extension, ...]
    """The extensions without which the peer does not work."""
    optional: tuple[Extension, ...]
    """The extensions that the peer suggests."""


_Listed = list[tuple[str, list[tuple[str, str]]]]


def listed(native: _Listed) -> tuple[Extension, ...]:
    """Returns the extensions of a native list."""
    return tuple(Extension(name, _first(pairs)) for name, pairs in native)


def proposed(native: tuple[str, tuple[int, int], _Listed, _Listed]) -> Proposal:
    """Returns the proposal of a native one."""
    identity, version, *lists = native
    required, optional = map(listed, lists)
    return Proposal(identity, version, required, optional)


def _first(pairs: list[tuple[str, str]]) -> dict[str, str]:
    first: dict[str, str] = {}
    for name, text in pairs:
        first.setdefault(name, text)
    return first


def written(extensions: Extensions) -> str:
    """Returns extensions as one list of a handshake."""
    if isinstance(extensions, str):
        return extensions
    # An extension is a tuple, and no iterable of extensions.
    given = [extensions] if isinstance(extensions, Extension) else extensions
    return ";".join(one if isinstance(one, str) else _text(one) for one in given)


def _text(one: Extension) -> str:
    """Returns an extension as text; raises for one that would be read as another one."""
    properties: Mapping[str, object] = one.properties
    for name in (one.name, *properties):
        if not name or any(sign in name for sign in ";:,="):
            text = f"an extension or a property has the name {name!r}: without ; : , and ="
            raise UsageError(text, "invalid_answer")
    for name, value in properties.items():
        # Half a surrogate pair is no text.
        if not isinstance(value, str) or value.encode(errors="ignore").decode() != value:
            shown = f"the property {name} of the extension {one.name}"
            raise UsageError(f"{shown} is no text", "invalid_answer")
    return str(one)


@dataclass(frozen=True, slots=True)
class Codec:
    """The format of payloads that an extension stands for."""

    encode: Callable[[Any], Buffer]
    """Makes a payload of a value."""
    decode: Callable[[bytes], Any]
    """Makes a value of a payload."""


def _compact(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _value(payload: bytes) -> object:
    try:
        return json.loads(payload, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("the payload nests too deep") from None


JSON: Final = Codec(_compact, _value)
"""JSON in UTF-8, for the extension ``json``; without NaN and infinity, which JSON does not have."""
