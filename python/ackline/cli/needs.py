"""Options of `ackline receive` that have an effect only beside something else."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import typer

from ackline.cli.send_relink import is_relink
from ackline.cli.values import USAGE, fail, option_of

__all__ = ["Given", "check_needs", "of_command_line"]

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
_RELINK_LISTEN = ("orphan_after", "max_links", "bind_identity")
_RELINK = (
    "ping_after",
    "pong_timeout",
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
    listens = [is_relink(url) for url in given.urls]
    if not given.connect:
        yield _CONNECT, "is an option of --connect: a receiver that listens has no use for it"
    if not listens:
        yield _LISTEN, "needs a URL to listen on: with --connect alone nobody connects"
    if True not in listens:
        yield _RELINK_LISTEN, "needs a URL of Relink to listen on"
        if not given.connect:
            yield _RELINK, "is an option of Relink, and no URL is of it"
    if False not in listens:
        yield _LUMBERJACK, "is an option of Lumberjack, and no URL is of it"
    if not given.is_kept:
        yield _SPOOL, "needs --spool DIR: --discard keeps nothing"
        if given.keeps_links:
            yield ("durable_links",), "needs --spool DIR to keep links in: --discard keeps nothing"
    if not given.waits_for_commit:
        yield ("v1_ack",), "needs --ack committed=NAME: otherwise version 1 is acknowledged too"
    if not given.has_quarantine:
        yield _QUARANTINE, "needs --on-invalid quarantine"
