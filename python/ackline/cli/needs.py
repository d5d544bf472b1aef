"""Options of `ackline receive` that have an effect only beside something else."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import typer

from ackline.cli.values import USAGE, fail, option_of

__all__ = [
    "PINGS",
    "PROTOCOLS",
    "RELINK",
    "Given",
    "check_needs",
    "of_command_line",
    "scheme_of",
]

_CONNECT = ("connect_timeout", "reconnect_max", "lost_after")
_LISTEN = (
    "proxy_from",
    "allow",
    "max_connections",
    "max_connections_per_address",
    "max_connection_age",
    "accept_rate",
    "max_bytes_per_second",
    "first_byte_timeout",
)
PINGS = ("ping_after", "pong_timeout")
_RELINK_LISTEN = ("orphan_after", "max_links", "bind_identity")
RELINK = (
    "lost_after",
    "packet_receive_timeout",
    "receive_window",
    "max_channels",
    "max_channel_ids",
    "max_message_parts",
    "max_part_bytes",
    "max_message_bytes",
    "max_multicast_bytes",
    "durable_links",
)
"""Options of Relink, at both ends of a link."""
_BPMUX = (
    "chunk_receive_timeout",
    "credit_floor",
    "credit_ceiling",
    "credit_budget",
    "max_payload_bytes",
    "max_opening_bytes",
    "max_entities",
    "max_requests",
)
_LUMBERJACK = (
    "v1_ack",
    "on_invalid",
    "quarantine_budget",
    "quarantine_age",
    "max_window_events",
    "max_json_bytes",
    "max_data_bytes",
    "max_compressed_bytes",
    "max_inflated_bytes",
    "max_pairs",
    "max_field_bytes",
    "max_window_bytes",
    "max_unacked_windows",
    "keepalive",
    "stall_timeout",
    "idle_timeout",
    "tail_idle",
    "no_window",
)
PROTOCOLS = {"lumberjack": "Lumberjack", "relink": "Relink", "bpmux": "bpmux"}
"""What each scheme is called."""
_OF = {
    ("lumberjack",): _LUMBERJACK,
    ("relink",): RELINK,
    ("bpmux",): _BPMUX,
    ("relink", "bpmux"): PINGS,
}
"""Options of protocols: by listening or by connecting, one of them must be spoken."""
_SPOOL = (
    "budget",
    "retain_committed",
    "retain_max",
    "allow_unsafe_filesystem",
    "group",
    "segment_bytes",
    "segment_age",
)
_QUARANTINE = ("quarantine_budget", "quarantine_age")


@dataclass(frozen=True, slots=True)
class Given:
    """What a command line says.

    Args:
        named: The options that it names, with underscores.
        urls: Where to listen.
        connect: Where to connect to.
        is_kept: There is a spool.
        keeps_links: Links are to be kept.
        waits_for_commit: Acknowledgements wait for a consumer.
        has_quarantine: What cannot be read is set aside.
    """

    named: Collection[str]
    urls: Sequence[str]
    connect: Sequence[str]
    is_kept: bool
    keeps_links: bool
    waits_for_commit: bool
    has_quarantine: bool


def of_command_line(context: typer.Context) -> set[str]:
    """The options that the command line names."""
    named = set()
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            named.add(name)
    return named


def check_needs(given: Given) -> None:
    """Ends the command at the first option that could have no effect, with what it needs."""
    if not given.urls and not given.connect:
        return  # nothing at all is the first to be told
    for names, why in _missing(given):
        for name in names:
            if name in given.named:
                fail(f"{option_of(name)} {why}", USAGE)


def _missing(given: Given) -> Iterator[tuple[Sequence[str], str]]:
    """Options without what they need, and why they have no effect."""
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
    """Options of protocols that no URL is of."""
    listens = {scheme_of(url) for url in given.urls}
    speaks = listens | {scheme_of(url) for url in given.connect}
    if not speaks <= PROTOCOLS.keys():
        return  # the receiver tells which URL is of no protocol
    if "relink" not in listens:
        yield _RELINK_LISTEN, "needs a URL of Relink to listen on"
    for schemes, names in _OF.items():
        if speaks.isdisjoint(schemes):
            called = " and ".join(PROTOCOLS[scheme] for scheme in schemes)
            yield names, f"is an option of {called}, and no URL is of it"


def scheme_of(url: str) -> str:
    """The protocol that a URL names, without its `+tls` or `+unix`."""
    return url.partition("://")[0].partition("+")[0]
