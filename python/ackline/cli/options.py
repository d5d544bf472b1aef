"""Options of a command that come from the protocols' tables of options."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from ackline import _core, _values
from ackline._table import value_of

__all__ = [
    "Option",
    "check_option",
    "options_of",
    "receiver_options",
    "together",
    "values_of",
    "with_options",
]

_METAVARS = {
    "count": "INTEGER",
    "bytes": "SIZE",
    "time": "TIME",
    "fraction": "FLOAT",
    "text": "TEXT",
    "path": "PATH",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a table.

    Args:
        name: Its name with underscores.
        kind: The kind of its values: count, bytes, time, flag, fraction, word, text or path.
        off: Whether it can be switched off.
        default: Its default in the command line's form; empty if it has none.
        help: One or a few sentences.
        words: The words that it takes, if it takes words.
        sections: The sections of the table that have it: several protocols may share an option.
    """

    name: str
    kind: str
    off: bool
    default: str
    help: str
    words: tuple[str, ...]
    sections: tuple[str, ...]


def options_of(what: str, *, but: Collection[str] = ()) -> list[Option]:
    """The options of ``receive``, or of a protocol's call such as ``relink.listen``.

    Args:
        what: The call.
        but: Names of options that are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    sections: dict[str, list[str]] = {}
    for row in _core.option_table(what):
        found.setdefault(row["name"], row)
        sections.setdefault(row["name"], []).append(row["section"])
    return [
        Option(
            name,
            row["kind"],
            row["off"],
            row["default"],
            row["help"],
            tuple(row["words"]),
            tuple(sections[name]),
        )
        for name, row in found.items()
        if name not in but
    ]


def receiver_options() -> list[Option]:
    """The options of `ackline receive`."""
    return options_of("receive")


def together(tables: Mapping[str, Iterable[Option]]) -> list[Option]:
    """Merges the options of a command that several protocols have.

    Args:
        tables: The options of each protocol, by the protocol's name in texts.

    Returns:
        Each option once. Its sections are the protocols that have it. A help or default that is
        not the same for all of them names the protocol.
    """
    found: dict[str, dict[str, Option]] = {}
    for title, options in tables.items():
        for option in options:
            found.setdefault(option.name, {})[title] = option
    merged = []
    for of in found.values():
        first = next(iter(of.values()))
        helps = {title: option.help for title, option in of.items()}
        defaults = {title: option.default for title, option in of.items()}
        if any(option.words != first.words for option in of.values()):
            first = replace(first, kind="text", words=())
        default, text = _merged(defaults, "; "), _merged(helps, " ")
        merged.append(replace(first, default=default, help=text, sections=tuple(of)))
    return merged


def _merged(texts: dict[str, str], between: str) -> str:
    """Returns a text that is the same for all protocols, or each protocol's behind its name."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return between.join(f"{title}: {text}" for title, text in texts.items())


def with_options(
    command: Callable[..., None],
    options: Iterable[Option],
    *,
    but: Collection[str] = (),
    defaults: Mapping[str, str] | None = None,
) -> None:
    """Gives `command` the options, each as an argument; an option that is not given is None.

    Args:
        command: A function whose last parameter is ``**options``.
        options: The options.
        but: Names of options that the command declares itself, or does not have.
        defaults: Texts for defaults that are the command's own, by the options' names.
    """
    declared = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    added = [
        _parameter(option, (defaults or {}).get(option.name, option.default))
        for option in options
        if option.name not in but
    ]
    signature = inspect.Signature([*declared, *added])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {
        name: parameter.annotation for name, parameter in signature.parameters.items()
    }


def values_of(
    what: str, options: Iterable[Option], given: Mapping[str, str | bool | None]
) -> dict[str, Any]:
    """Returns the values of options by their names: the given ones, or their defaults.

    Args:
        what: The table, as for `options_of`.
        options: The options of the command.
        given: Their values in the command line's form; None if the command line names none.

    Returns:
        Sizes and counts as int, times as seconds, flags as bool, others as str; None is off.

    Raises:
        UsageError: A value does not fit.
    """
    values = {}
    for option in options:
        value = given.get(option.name)
        if value is not None:
            _core.check_option(what, option.name, value)
        text = option.default if value is None else value
        values[option.name] = (
            text if isinstance(text, bool) else value_of({"kind": option.kind}, text)
        )
    return values


def check_option(what: str, name: str, text: str | None) -> int:
    """The number of a count or size.

    Args:
        what: The table, as for `options_of`.
        name: The option's name.
        text: Its value as written; None is the default.

    Raises:
        UsageError: The text does not fit.
    """
    [option] = [option for option in options_of(what) if option.name == name]
    if text is not None:
        _core.check_option(what, name, text)
    return _values.size(option.default if text is None else text) or 0


def _parameter(option: Option, default: str) -> inspect.Parameter:
    kind: Any = bool | None if option.kind == "flag" else str | None
    metavar = "|".join(option.words) or _METAVARS.get(option.kind)
    if option.off and metavar is not None and option.kind != "path" and option.default:
        metavar += "|off"
    names = [f"--{option.name.replace('_', '-')}"]
    if option.kind == "flag" and option.default == "true":
        names = [f"{names[0]}/--no{names[0][1:]}"]
    panel = " and ".join(section for section in option.sections if section)
    told = typer.Option(
        *names,
        help=option.help,
        metavar=None if option.kind == "flag" else metavar,
        show_default=default if option.kind != "flag" and default else False,
        rich_help_panel=panel or None,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, told],
    )
