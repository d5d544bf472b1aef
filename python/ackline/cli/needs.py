"""Options of `ackline receive` that have an effect only together with another option."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import typer

from ackline import _core
from ackline._table import nearest
from ackline.cli.options import receiver_options
from ackline.cli.values import USAGE, fail, option_of

__all__ = [
    "PINGS",
    "PROTOCOLS",
    "RELINK",
    "Given",
    "check_needs",
    "check_protocol",
    "of_command_line",
    "one_of",
    "scheme_of",
]

PROTOCOLS = dict(_core.protocols())
"""The name in texts of each scheme."""
_OPTIONS = receiver_options()
_CONNECT = ("connect_timeout", "reconnect_max", "lost_after")
PINGS = ("ping_after", "pong_timeout")
_RELINK_LISTEN = ("orphan_after", "max_links", "bind_identity")
_QUARANTINE = ("quarantine_budget", "quarantine_age")


def _of(*sections: str) -> tuple[str, ...]:
    """Returns the options that these sections have and no other section has."""
    return tuple(option.name for option in _OPTIONS if option.sections == sections)


_LISTEN = (
    *(name for name in _of("Connections") if name != "handshake_timeout"),
    "first_byte_timeout",
)
_SPOOL = _of("Spool")
RELINK = tuple(
    option.name
    for option in _OPTIONS
    if PROTOCOLS["relink"] in option.sections and option.name not in _RELINK_LISTEN
)
"""Options of Relink, at both ends of a link."""


def _of_protocols_alone() -> dict[tuple[str, ...], tuple[str, ...]]:
    """Returns the options of single protocols, by the schemes of the protocols."""
    schemes = {title: scheme for scheme, title in PROTOCOLS.items()}
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for option in _OPTIONS:
        of = tuple(schemes[section] for section in option.sections if section in schemes)
        if len(of) == len(option.sections):
            found[of] = (*found.get(of, ()), option.name)
    lumberjack = ("lumberjack",)
    found[lumberjack] = (*found.get(lumberjack, ()), "v1_ack", *_QUARANTINE)
    return found


_OF = _of_protocols_alone()
"""Options of protocols: a URL to listen on or to connect to must have one of the protocols."""


@dataclass(frozen=True, slots=True)
class Given:
    """The content of a command line.

    Args:
        named: The options that it names, with underscores.
        urls: The URLs to listen on.
        connect: The URLs to connect to.
        is_kept: Whether there is a spool.
        keeps_links: Whether links are to be kept.
        waits_for_commit: Whether acknowledgements wait for a consumer.
        has_quarantine: Whether unreadable input is set aside.
    """

    named: Collection[str]
    urls: Sequence[str]
    connect: Sequence[str]
    is_kept: bool
    keeps_links: bool
    waits_for_commit: bool
    has_quarantine: bool


def of_command_line(context: typer.Context) -> set[str]:
    """Returns the options that the command line names."""
    named = set()
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            named.add(name)
    return named


def check_needs(given: Given) -> None:
    """Ends the command at the first option that could have no effect, and names its need."""
    if not given.urls and not given.connect:
        return  # the missing URL is reported first
    for names, why in _missing(given):
        for name in names:
            if name in given.named:
                fail(f"{option_of(name)} {why}", USAGE)


def _missing(given: Given) -> Iterator[tuple[Sequence[str], str]]:
    """Yields options that miss something they need, and why they have no effect."""
    if not given.connect:
        yield _CONNECT, "is an option of --connect: a receiver that listens has no use for it"
    if not given.urls:
        yield _LISTEN, "needs a URL to listen on: with --connect alone nobody connects"
    yield from _of_protocols(given)
    if not given.is_kept:
        yield _SPOOL, "needs --spool DIR: --discard keeps nothing"
        if given.keeps_links:
            yield ("durable_links",), "needs --spool DIR to keep links in: --discard keeps nothing"
    if not given.waits_for_commit:
        yield ("v1_ack",), "needs --ack committed=NAME: otherwise version 1 is acknowledged too"
    if not given.has_quarantine:
        yield _QUARANTINE, "needs --on-invalid quarantine"


def _of_protocols(given: Given) -> Iterator[tuple[Sequence[str], str]]:
    """Yields options of protocols that no URL has."""
    listens = {scheme_of(url) for url in given.urls}
    speaks = listens | {scheme_of(url) for url in given.connect}
    if not speaks <= PROTOCOLS.keys():
        return  # the receiver names the URL that has no known protocol
    if "relink" not in listens:
        yield _RELINK_LISTEN, "needs a URL of Relink to listen on"
    for schemes, names in _OF.items():
        if speaks.isdisjoint(schemes):
            called = " and ".join(PROTOCOLS[scheme] for scheme in schemes)
            yield names, f"is an option of {called}, and no URL is of it"


def one_of(url: str, schemes: Sequence[str], others: Mapping[str, str] | None = None) -> str:
    """Returns the protocol of a URL; ends the command if it is none of its protocols.

    Args:
        url: The URL.
        schemes: The protocols of the command.
        others: For other protocols, the command to use instead.
    """
    place, scheme = url.partition("?")[0], scheme_of(url)
    forms = " or ".join(f"{one}://host:port" for one in schemes)
    if "://" not in url:
        fail(f"{place!r} is not a URL: write {forms}", USAGE)
    if scheme not in PROTOCOLS:
        hint = nearest(scheme, schemes)
        fail(f"{place}: there is no protocol {scheme!r} here{hint}: write {forms}", USAGE)
    if scheme not in schemes:
        instead = (others or {}).get(scheme)
        hint = f"use `ackline {instead}`" if instead else f"write {forms}"
        fail(f"{place}: {PROTOCOLS[scheme]} is no protocol of this command: {hint}", USAGE)
    return scheme


def check_protocol(named: Collection[str], scheme: str, of: Mapping[str, Collection[str]]) -> None:
    """Ends the command at the first option that the protocol of its URL does not have.

    Args:
        named: The options that the command line names, with underscores.
        scheme: The protocol.
        of: For each option that not every protocol has, the protocols that have it.
    """
    for name, schemes in of.items():
        if name in named and scheme not in schemes:
            called = " and ".join(PROTOCOLS[one] for one in schemes)
            fail(f"{option_of(name)} is an option of {called}", USAGE)


def scheme_of(url: str) -> str:
    """Returns the protocol that a URL names, without its `+tls` or `+unix`."""
    return url.partition("://")[0].partition("+")[0]
