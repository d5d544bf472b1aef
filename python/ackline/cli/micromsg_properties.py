"""Properties of messages on a command line: `NAME=VALUE`, or `NAME:VALUE` as on the wire."""

import re
from collections.abc import Sequence
from datetime import datetime

from ackline._micromsg_core import micromsg_read_properties, micromsg_write_properties
from ackline.cli.micromsg_json import Properties
from ackline.cli.values import USAGE, fail
from ackline.exceptions import UsageError

__all__ = ["properties_of"]

_TYPES = {"N": (int, float), "D": (datetime,), "T": (str,)}
"""The types of the values on the wire, by their letters."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_WHOLES = range(-(1 << 63), 1 << 63)


def properties_of(given: Sequence[str]) -> Properties:
    """Returns the properties of the command line; a wrong one ends the command."""
    found: Properties = {}
    for text in given:
        try:
            one = _property(text)
        except UsageError as error:
            fail(f"--property {text}: {error}", USAGE)
        if found.keys() & one.keys():
            fail(f"--property {text}: the property is given twice", USAGE)
        found |= one
    return found


def _property(text: str) -> Properties:
    at = re.search("[=:]", text)
    if at is None:
        raise UsageError("write NAME=VALUE, or NAME:VALUE as on the wire")
    name, value = text[: at.start()], text[at.end() :]
    if at[0] == "=":
        one: Properties = {name: _plain(value)}
    elif ";" in value:
        raise UsageError("a value on the wire has no semicolon: write %3B")
    else:
        one = micromsg_read_properties(f"{name}:{value};")
        if not isinstance(one[name], _TYPES.get(value[:1], ())):
            forms = "N with a number, D with seconds since 1970, or T with a text"
            raise UsageError(f"a value on the wire is {forms}")
    # This refuses names that cannot be sent.
    micromsg_write_properties(one)
    return one


def _plain(text: str) -> int | float | str:
    """Returns a number in the form of JSON, without an exponent, as a number; else the text."""
    if _WHOLE.fullmatch(text) and (number := int(text)) in _WHOLES:
        return number
    return float(text) if _FRACTION.fullmatch(text) else text
