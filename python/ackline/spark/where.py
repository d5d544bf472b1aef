"""`where`: a predicate in the form of SQL on the properties of messages, for a broker of MicroMsg2.

A predicate is translated exactly or refused by the name of the part that has no translation. The
broker then sends the messages for which SQL would find the predicate true, with each property as a
typed column that is NULL if the message has no such property, or one of another type. So `<>` and
NOT LIKE, which are NULL and not true then, become two conditions: the filter's own `!=` and `~`
hold for a missing property, and the second condition holds for every property of the type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ackline import _core
from ackline.exceptions import UsageError
from ackline.spark.times import since_epoch

if TYPE_CHECKING:
    from collections.abc import Sequence


def filter_of(predicate: str) -> str:
    """Return the filter of MicroMsg2 that has the meaning of a predicate.

    Args:
        predicate: Comparisons of properties with literals, joined by AND, such as
            ``level >= 3 AND region = 'eu' AND host LIKE 'web%'``.

    Raises:
        UsageError: A part cannot be translated; the text names it.
    """
    conditions = _Parser(_tokens(predicate)).predicate()
    return str(_core.MicroMsgFilter(";".join(conditions)))


def checked_filter(text: str) -> str:
    """Return a filter in the protocol's own form, as `micromsg.filter` gives it.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        return str(_core.MicroMsgFilter(text))
    except UsageError as error:
        raise UsageError(f"micromsg.filter: {error}", error.code) from None


def is_of_micromsg(url: str) -> bool:
    """Return whether a URL is one of MicroMsg2."""
    return url.partition("://")[0].partition("+")[0] == "micromsg"


def subscribed(urls: Sequence[str], text: str) -> tuple[str, ...]:
    """Return URLs of topics or queues with a filter.

    Args:
        urls: URLs of MicroMsg2 to connect to.
        text: The filter.

    Raises:
        UsageError: A URL has a filter.
    """
    made = []
    for url in urls:
        place, _, query = url.partition("?")
        if any(pair.partition("=")[0] == "filter" for pair in query.split("&")):
            raise UsageError(f"{place} has a filter in its query, and the query of Spark another")
        made.append(f"{url}{'&' if query else '?'}filter={quote(text, safe='')}")
    return tuple(made)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


class _Parser:
    """Reads `condition AND condition …`, with parentheses around any part of it."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def predicate(self) -> list[str]:
        conditions = self._conjunction()
        if self._next.kind != "end":
            raise self._refused()
        return conditions

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _conjunction(self) -> list[str]:
        conditions = self._term()
        while self._next.is_word("AND"):
            self._take()
            conditions += self._term()
        return conditions

    def _term(self) -> list[str]:
        if self._next.kind != "(":
            return self._condition()
        self._take()
        conditions = self._conjunction()
        if self._next.kind != ")":
            raise self._refused()
        self._take()
        return conditions

    def _condition(self) -> list[str]:
        name = self._name()
        if self._next.kind == "(":
            raise _refusal(f"the function {name}()", "")
        if self._next.kind == "operator":
            operator = _OPERATORS.get(self._next.text)
            if operator is None:
                raise self._refused()
            self._take()
            return _comparison(name, operator, self._literal(name))
        is_not = self._next.is_word("NOT")
        at = self._at + is_not
        pattern = self._tokens[min(at + 1, len(self._tokens) - 1)]
        if not self._tokens[at].is_word("LIKE") or pattern.kind != "string":
            raise self._refused()
        self._at = at + 2
        return _like(name, _unquoted(pattern.text), is_not=is_not)

    def _name(self) -> str:
        token = self._next
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        is_time = token.is_word("TIMESTAMP", "DATE") and following.kind == "string"
        if token.kind in ("number", "string", "-") or is_time:
            raise _refusal(f"the literal {token.text} in front", "write the property first")
        if token.kind == "quoted":
            name = token.text[1:-1].replace("``", "`")
        elif token.kind == "word" and token.text.upper() not in _RESERVED:
            name = token.text
            if name != name.lower():
                raise _refusal(name, "names are compared by case: write it in backquotes")
        else:
            raise self._refused()
        if not name.isascii() or not name.isprintable() or set(name) & set(_NO_NAME):
            raise _refusal(f"the name {name!r}", "no property can have it")
        self._take()
        return name

    def _literal(self, name: str) -> int | float | datetime | str:
        token = self._take()
        is_negative = token.kind == "-"
        if is_negative:
            token = self._take()
        if token.kind == "number":
            return _number(("-" if is_negative else "") + token.text)
        if is_negative:
            raise _refusal(f"-{token.text}", "")
        if token.kind == "string":
            return _unquoted(token.text)
        if token.is_word("TIMESTAMP") and self._next.kind == "string":
            return _timestamp(_unquoted(self._take().text))
        if token.kind == "end":
            raise self._refused()
        said = f"{name} compared with {token.text}"
        raise _refusal(said, _ADVICE.get(token.text.upper(), ""))

    def _refused(self) -> UsageError:
        token = self._next
        if token.kind == "end":
            return UsageError(f"where: the predicate is not complete: {_EXAMPLE}", code="where")
        part = token.text
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.is_word("NOT") and following.kind == "word":
            part = f"{token.text} {following.text}"
        return _refusal(part, _ADVICE.get(part[:1] if part[0] == '"' else token.text.upper(), ""))


def _comparison(name: str, operator: str, value: float | datetime | str) -> list[str]:
    """Return the conditions of a comparison with a literal."""
    if isinstance(value, str) and operator not in ("=", "!="):
        raise _refusal(
            f"{name} {operator} '{value}'", "a filter does not compare texts by their order"
        )
    condition = name + operator + _written(value)
    return [_is_there(name, value), condition] if operator == "!=" else [condition]


def _like(name: str, pattern: str, *, is_not: bool) -> list[str]:
    """Return the conditions of LIKE or NOT LIKE."""
    text = pattern.strip("%")
    operator = {
        (False, False): "=",
        (False, True): "<",
        (True, False): ">",
        (True, True): "&",
    }[pattern.startswith("%"), pattern.endswith("%")]
    said = f"{name} {'NOT ' if is_not else ''}LIKE '{pattern}'"
    if "_" in text or "%" in text:
        raise _refusal(said, "only % at the beginning and the end of a pattern can be translated")
    if not text and pattern:
        operator = "<"
    if not is_not:
        return [name + operator + _written(text)]
    negative = {"=": "!=", "&": "~"}.get(operator)
    if negative is None:
        raise _refusal(said, "a filter has no such condition")
    return [_is_there(name, text), name + negative + _written(text)]


def _is_there(name: str, value: float | datetime | str) -> str:
    """Return the condition that every property of a value's type fulfils, and no other."""
    if isinstance(value, str):
        return f"{name}<T"
    least = _written(_LEAST)
    return f"{name}>={least}" if not isinstance(value, datetime) else f"{name}>=D{least[1:]}"


def _written(value: float | datetime | str) -> str:
    """Return a value as it stands in a filter."""
    return str(_core.MicroMsgFilter.condition("x", "=", value)).removeprefix("x=")


def _number(text: str) -> int | float:
    """Return a number without losing a digit of it."""
    exact = Decimal(text)
    if exact == exact.to_integral_value():
        whole = int(exact)
        if -(1 << 63) <= whole < 1 << 63:
            return whole
        raise _refusal(text, "a property's whole number has 64 bits")
    number = float(text)
    if Decimal(repr(number)) != exact:
        raise _refusal(text, "it has more digits than a property's number keeps")
    return number


def _timestamp(text: str) -> datetime:
    found = _TIMESTAMP.fullmatch(text)
    said = f"TIMESTAMP '{text}'"
    if found is None:
        raise _refusal(said, "write it with its zone, such as TIMESTAMP '2026-11-21 10:00:00Z'")
    try:
        time = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _refusal(said, "it is no time") from None
    micros = since_epoch(time)
    if Decimal(repr(micros / 1_000_000)) != Decimal(micros) / 1_000_000:
        raise _refusal(said, "it has more digits than a property's date keeps")
    return time


def _unquoted(text: str) -> str:
    if "\\" in text:
        raise _refusal(text, "a backslash has several meanings in SQL")
    return text[1:-1].replace("''", "'")


def _tokens(predicate: str) -> list[_Token]:
    tokens = []
    for found in _TOKEN.finditer(predicate):
        kind, text = str(found.lastgroup), found[0]
        if kind != "space":
            tokens.append(_Token(text if kind == "sign" else kind, text))
    return [*tokens, _Token("end", "")]


def _refusal(part: str, why: str) -> UsageError:
    because = f": {why}" if why else ""
    return UsageError(
        f"where: {part} cannot be translated into a filter of MicroMsg2{because}; use "
        "DataFrame.filter for that part",
        code="where",
    )


_OPERATORS: Final = {
    "=": "=",
    "==": "=",
    "<>": "!=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>\d+(?:\.\d+)?(?![\w.]))
    | (?P<word>[A-Za-z_]\w*)
    | (?P<operator><=>|<>|!=|<=|>=|==|=|<|>)
    | (?P<sign>[-()])
    | (?P<other>[\w.]+|.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-](0\d|1[0-7]):[0-5]\d)", re.ASCII
)
# Words that are no names without backquotes.
_RESERVED: Final = frozenset(
    {
        "AND",
        "OR",
        "NOT",
        "LIKE",
        "IN",
        "IS",
        "BETWEEN",
        "EXISTS",
        "CASE",
        "CAST",
        "NULL",
        "TRUE",
        "FALSE",
        "INTERVAL",
    }
)
_EXAMPLE: Final = "level >= 3 AND region = 'eu' is one"
# Characters that no name has in a filter.
_NO_NAME: Final = " :;,=<>!~&"
# The smallest number that a property can have.
_LEAST: Final = -1.7976931348623157e308
# Hints at another way, by the first word or character of a part.
_ADVICE: Final = {
    "OR": "all conditions of a filter must hold",
    "IN": "all conditions of a filter must hold",
    "NOT": "write the opposite comparison",
    "BETWEEN": "write two comparisons with AND",
    "DATE": "write the time, such as TIMESTAMP '2026-11-21 00:00:00Z'",
    "TRUE": "truth values are texts in messages: write 'true'",
    "FALSE": "truth values are texts in messages: write 'false'",
    "NULL": "a comparison with NULL is never true",
    "IS": "a comparison is never true for a missing property",
    '"': "write texts in single quotes and names in backquotes",
}
