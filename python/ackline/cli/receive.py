"""`ackline receive`: listens, keeps, acknowledges; tells it as a live line or JSON lines."""

import os
import signal
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated, Protocol

import typer

from ackline.cli.files import allow_files
from ackline.cli.live import LiveLine
from ackline.cli.needs import Given, check_needs, of_command_line
from ackline.cli.terminal import escaped
from ackline.cli.values import (
    DISK,
    FAILED,
    UNACKED,
    USAGE,
    as_written,
    fail,
    milliseconds,
    option_of,
    size,
    timer,
)
from ackline.exceptions import AcklineError, UsageError
from ackline.receiver import Receiver

__all__ = ["receive"]

_WAIT = 0.2
_SIGNAL_CHECK = 0.1
"""Seconds between looks for signals."""
_LAST_LINES = 2.0
_MAX_CONNECTIONS = 10_000
"""The default of --max-connections."""


class Stopping:
    """Whether a signal has asked for the end; the second one is raised.

    A handler runs between any two steps of the main thread: it takes no lock that a wait may hold.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._is_asked = False

    def on_signals(self) -> None:
        """Handles SIGINT and SIGTERM from now on."""
        signal.signal(signal.SIGINT, self.handle)
        signal.signal(signal.SIGTERM, self.handle)

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Handles a signal."""
        if self._is_asked:
            raise _SecondSignal
        self._is_asked = True
        self._asked.put(None)

    def wait(self, seconds: float) -> bool:
        """Waits for the first signal; says whether it came."""
        try:
            self._asked.get(timeout=seconds)
        except Empty:
            return False
        return True


class _SecondSignal(BaseException):
    """Whoever stops us a second time does not want to wait."""


class _Show(Protocol):
    """What the thread that reads the receiver's lines does with each."""

    def line(self, line: str) -> None: ...

    def end(self) -> None: ...


def receive(  # noqa: PLR0913, PLR0917 (each is an option of the command)
    context: typer.Context,
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            help="Where to listen: lumberjack://127.0.0.1:5044, lumberjack+tls://…, "
            "relink://127.0.0.1:5100/NAME (without NAME: the endpoint without one), "
            "bpmux://127.0.0.1:5200; port 0 is allowed."
        ),
    ] = None,
    connect: Annotated[
        list[str] | None,
        typer.Option(
            help="Where to connect to, for ever, and to land what is sent there: "
            "relink://host:port/NAME, bpmux://host:port (?stream=TEXT opens a stream there); "
            "may be repeated."
        ),
    ] = None,
    spool: Annotated[str | None, typer.Option(help="Directory to keep events in.")] = None,
    discard: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option("--discard", help="Count and acknowledge WITHOUT keeping, for measuring."),
    ] = False,
    budget: Annotated[
        str, typer.Option(help="Bytes of the spool: above it senders wait.")
    ] = "4GiB",
    ack: Annotated[
        str,
        typer.Option(
            help="When to acknowledge: durable (on this disk), or committed=NAME (when the query "
            "with that consumer has committed; keepalives until then)."
        ),
    ] = "durable",
    v1_ack: Annotated[
        str,
        typer.Option(
            help="With --ack committed=NAME, version 1, which has no keepalive: refuse, or durable."
        ),
    ] = "refuse",
    retain_committed: Annotated[
        str | None,
        typer.Option(
            help="How long to keep what all consumers have committed.", show_default="24h"
        ),
    ] = None,
    retain_max: Annotated[
        str | None,
        typer.Option(
            help="Age at which events go even if NOT committed: a choice to lose them; off."
        ),
    ] = None,
    on_invalid: Annotated[
        str,
        typer.Option(
            help="Windows that cannot be read: refuse the connection, or quarantine (keep as they "
            "came in DIR/quarantine, then acknowledge)."
        ),
    ] = "refuse",
    quarantine_budget: Annotated[
        str | None,
        typer.Option(help="Bytes of the quarantine: above it refused.", show_default="64MiB"),
    ] = None,
    quarantine_age: Annotated[
        str | None, typer.Option(help="Age at which the quarantine forgets.", show_default="7d")
    ] = None,
    allow_unsafe_filesystem: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option(
            "--allow-unsafe-filesystem",
            help="Write to NFS, SMB or FUSE too: what they acknowledge may not be kept.",
        ),
    ] = False,
    group: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--group", help="The group of the spool's files may use them too.")
    ] = False,
    memory: Annotated[
        str, typer.Option(help="Bytes of unacknowledged input in memory.")
    ] = "256MiB",
    max_sender_share: Annotated[
        float | None,
        typer.Option(
            help="The part of the memory, and of the spool's budget, that one sender (an address, "
            "or a certificate's subject) may have while there are others: above 0 and up to 1.",
            show_default="0.5",
        ),
    ] = None,
    min_rate: Annotated[
        str | None,
        typer.Option(
            help="Bytes a second that a sender must keep up over a frame or window that holds "
            "memory, while others wait for memory.",
            show_default="1KiB",
        ),
    ] = None,
    frame_timeout: Annotated[
        str | None,
        typer.Option(
            help="How long such a frame or window may take as a whole, while others wait for "
            "memory; off.",
            show_default="60s",
        ),
    ] = None,
    drain_timeout: Annotated[
        str,
        typer.Option(
            help="How long a stop waits for what was received; it ends many connections one by one "
            "over three quarters of it.",
        ),
    ] = "10s",
    proxy_from: Annotated[
        str | None,
        typer.Option(
            help="Networks of proxies, 10.0.0.0/8,127.0.0.1: a PROXY header is required from them, "
            "refused from others."
        ),
    ] = None,
    allow: Annotated[
        str | None, typer.Option(help="Networks of senders.", show_default="everybody")
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Connections at once.", show_default="10000")
    ] = None,
    max_connections_per_address: Annotated[
        int | None,
        typer.Option(
            help="Connections of one address (IPv6: of its /64) or local user at once; 0 is all.",
            show_default="all but an eighth of --max-connections",
        ),
    ] = None,
    max_connection_age: Annotated[
        str | None,
        typer.Option(
            help="Age at which a connection ends, ± 20 %, when its window is acknowledged; off."
        ),
    ] = None,
    accept_rate: Annotated[
        int | None,
        typer.Option(help="Connections accepted in a second; 0 is off.", show_default="1000"),
    ] = None,
    max_bytes_per_second: Annotated[
        str | None,
        typer.Option(
            help="Bytes that one sender may send in a second: above it reading waits; 0 is off.",
            show_default="0",
        ),
    ] = None,
    handshake_timeout: Annotated[
        str | None,
        typer.Option(
            help="For a PROXY header, and for a handshake of TLS or Relink.", show_default="10s"
        ),
    ] = None,
    ca: Annotated[
        str | None,
        typer.Option(help="TLS: PEM file of certificates that issue the senders'."),
    ] = None,
    crl: Annotated[
        str | None, typer.Option(help="TLS: PEM file of revocation lists, up to 1 MiB.")
    ] = None,
    cert: Annotated[
        str | None, typer.Option(help="TLS: PEM file with the certificate of +tls URLs.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="TLS: PEM file with its key.")] = None,
    client_auth: Annotated[
        str | None,
        typer.Option(
            help="TLS: certificates of senders: none, optional or required.",
            show_default="required with --ca",
        ),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            help="TLS: part of a certificate that a sender is known by: subject (with its "
            "issuer), san or fingerprint.",
            show_default="subject",
        ),
    ] = None,
    tokens_file: Annotated[
        str | None,
        typer.Option(
            help="TLS: file with a name and a token in each line: only senders with one of "
            "these tokens are served, and are known by its name."
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(help="TLS: file with our own token, where --connect reaches a --tokens-file."),
    ] = None,
    as_json: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--json", help="JSON lines alone on standard output.")
    ] = False,
    max_window_events: Annotated[int | None, typer.Option(help="Events in a window.")] = None,
    max_json_bytes: Annotated[str | None, typer.Option(help="Bytes of a JSON event.")] = None,
    max_data_bytes: Annotated[str | None, typer.Option(help="Bytes of a key-value event.")] = None,
    max_compressed_bytes: Annotated[
        str | None, typer.Option(help="Bytes of a compressed frame.")
    ] = None,
    max_inflated_bytes: Annotated[
        str | None, typer.Option(help="Bytes that a compressed frame inflates to.")
    ] = None,
    max_pairs: Annotated[int | None, typer.Option(help="Pairs in a key-value event.")] = None,
    max_field_bytes: Annotated[str | None, typer.Option(help="Bytes of a key or value.")] = None,
    max_window_bytes: Annotated[str | None, typer.Option(help="Bytes of a window.")] = None,
    max_unacked_windows: Annotated[
        int | None,
        typer.Option(help="Unacknowledged windows of a connection: above it reading waits."),
    ] = None,
    keepalive: Annotated[
        str | None, typer.Option(help="Between keepalives while a window waits; off.")
    ] = None,
    stall_timeout: Annotated[
        str | None, typer.Option(help="Silence inside a frame or window; off.")
    ] = None,
    idle_timeout: Annotated[str | None, typer.Option(help="Silence between windows; off.")] = None,
    first_byte_timeout: Annotated[
        str | None, typer.Option(help="Silence of a new connection; off.")
    ] = None,
    tail_idle: Annotated[
        str | None, typer.Option(help="Silence after which a part of a v1 window is kept; off.")
    ] = None,
    no_window: Annotated[
        str | None, typer.Option(help="Events before any window frame: accept or refuse.")
    ] = None,
    durable_links: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option(
            help="Relink, with --spool: keep links beside it, so that they survive a restart."
        ),
    ] = True,
    orphan_after: Annotated[
        str | None,
        typer.Option(
            help="Relink: age at which a link without a connection is lost.", show_default="5m"
        ),
    ] = None,
    max_links: Annotated[
        int | None, typer.Option(help="Relink: links at once.", show_default="10000", min=1)
    ] = None,
    bind_identity: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option(help="Relink: a link that was made with a certificate is its subject's."),
    ] = True,
    connect_timeout: Annotated[
        str | None,
        typer.Option(help="--connect: time for one attempt.", show_default="10s"),
    ] = None,
    reconnect_max: Annotated[
        str | None,
        typer.Option(help="--connect: the longest wait between two attempts.", show_default="60s"),
    ] = None,
    lost_after: Annotated[
        str | None,
        typer.Option(
            help="Relink, --connect: age at which a link without a connection is replaced; off.",
            show_default="off",
        ),
    ] = None,
    ping_after: Annotated[
        str | None,
        typer.Option(
            help="Relink, bpmux: silence after which a ping goes out; off.", show_default="11s"
        ),
    ] = None,
    pong_timeout: Annotated[
        str | None,
        typer.Option(
            help="Relink, bpmux: how long a ping waits before the connection ends; off.",
            show_default="7s",
        ),
    ] = None,
    packet_receive_timeout: Annotated[
        str | None,
        typer.Option(help="Relink: silence inside a packet; off.", show_default="30s"),
    ] = None,
    receive_window: Annotated[
        int | None,
        typer.Option(
            help="Relink: messages of a channel that are not consumed.",
            min=1,
            show_default="1048576",
        ),
    ] = None,
    max_channels: Annotated[
        int | None, typer.Option(help="Relink: channels of a link at once.", min=1)
    ] = None,
    max_channel_ids: Annotated[
        int | None, typer.Option(help="Relink: channels in one packet.", min=1)
    ] = None,
    max_message_parts: Annotated[
        int | None, typer.Option(help="Relink: parts of a message.", min=1)
    ] = None,
    max_part_bytes: Annotated[str | None, typer.Option(help="Relink: bytes of a part.")] = None,
    max_message_bytes: Annotated[
        str | None, typer.Option(help="Relink: bytes of a message.")
    ] = None,
    max_multicast_bytes: Annotated[
        str | None, typer.Option(help="Relink: bytes of a message, times its channels.")
    ] = None,
    chunk_receive_timeout: Annotated[
        str | None, typer.Option(help="bpmux: silence inside a chunk; off.", show_default="30s")
    ] = None,
    credit_floor: Annotated[
        str | None,
        typer.Option(help="bpmux: credit that each sink has at least.", show_default="4KiB"),
    ] = None,
    credit_ceiling: Annotated[
        str | None,
        typer.Option(help="bpmux: credit for one sink at the most.", show_default="4MiB"),
    ] = None,
    credit_budget: Annotated[
        str | None,
        typer.Option(help="bpmux: credit of a connection above the floors.", show_default="32MiB"),
    ] = None,
    max_payload_bytes: Annotated[
        str | None,
        typer.Option(help="bpmux: bytes of a message or request.", show_default="16MiB"),
    ] = None,
    max_opening_bytes: Annotated[
        str | None,
        typer.Option(
            help="bpmux: bytes that a sink may be opened with: its rows have a copy.",
            show_default="1KiB",
        ),
    ] = None,
    max_entities: Annotated[
        int | None,
        typer.Option(
            help="bpmux: sinks, streams and duplexes of a connection.",
            show_default="65536",
            min=1,
        ),
    ] = None,
    max_requests: Annotated[
        int | None,
        typer.Option(
            help="bpmux: requests of a connection that wait.", show_default="65536", min=1
        ),
    ] = None,
    segment_bytes: Annotated[str | None, typer.Option(help="Bytes of a segment file.")] = None,
    segment_age: Annotated[str | None, typer.Option(help="Age of a segment file.")] = None,
) -> None:
    """Receives events, keeps them durably in a spool, then acknowledges them.

    Ends with 0 after SIGINT or SIGTERM when everything received was acknowledged; with 4, and the
    number, when not all was within --drain-timeout or at a second signal; with 74 when the disk
    failed; 2 for a wrong command line, 1 when it could not start.
    """
    if (spool is None) != discard:
        fail("choose --spool DIR to keep events, or --discard to count without keeping", USAGE)
    if spool == "":  # as a path it would be this directory
        fail("--spool is empty: it takes a directory", USAGE)
    _check_choices(
        {
            "--no-window": (no_window, {"accept", "refuse"}),
            "--v1-ack": (v1_ack, {"refuse", "durable"}),
            "--on-invalid": (on_invalid, {"refuse", "quarantine"}),
            "--client-auth": (client_auth, {"none", "optional", "required"}),
            "--identity": (identity, {"subject", "san", "fingerprint"}),
        }
    )
    if discard and ack.startswith("committed="):
        fail("--ack committed=NAME needs --spool DIR to commit from", USAGE)
    if discard and on_invalid == "quarantine":
        fail("--on-invalid quarantine needs --spool DIR to stand in", USAGE)
    check_needs(
        Given(
            named=of_command_line(context),
            urls=urls or [],
            connect=connect or [],
            is_kept=spool is not None,
            keeps_links=durable_links,
            waits_for_commit=ack.startswith("committed="),
            has_quarantine=on_invalid == "quarantine",
        )
    )
    sizes = {
        "budget": budget,
        "memory": memory,
        "min_rate": min_rate,
        "max_json_bytes": max_json_bytes,
        "max_data_bytes": max_data_bytes,
        "max_compressed_bytes": max_compressed_bytes,
        "max_inflated_bytes": max_inflated_bytes,
        "max_field_bytes": max_field_bytes,
        "max_window_bytes": max_window_bytes,
        "max_bytes_per_second": max_bytes_per_second,
        "max_part_bytes": max_part_bytes,
        "max_message_bytes": max_message_bytes,
        "max_multicast_bytes": max_multicast_bytes,
        "credit_floor": credit_floor,
        "credit_ceiling": credit_ceiling,
        "credit_budget": credit_budget,
        "max_payload_bytes": max_payload_bytes,
        "max_opening_bytes": max_opening_bytes,
        "segment_bytes": segment_bytes,
        "quarantine_budget": quarantine_budget,
    }
    times = {
        "retain_committed_ms": retain_committed,
        "quarantine_age_ms": quarantine_age,
        "drain_timeout_ms": drain_timeout,
        "handshake_timeout_ms": handshake_timeout,
        "orphan_after_ms": orphan_after,
        "connect_timeout_ms": connect_timeout,
        "reconnect_max_ms": reconnect_max,
        "segment_age_ms": segment_age,
    }
    timers = {
        "retain_max_ms": retain_max,
        "max_connection_age_ms": max_connection_age,
        "keepalive_ms": keepalive,
        "stall_timeout_ms": stall_timeout,
        "idle_timeout_ms": idle_timeout,
        "first_byte_timeout_ms": first_byte_timeout,
        "frame_timeout_ms": frame_timeout,
        "tail_idle_ms": tail_idle,
        "lost_after_ms": lost_after,
        "ping_after_ms": ping_after,
        "pong_timeout_ms": pong_timeout,
        "packet_receive_timeout_ms": packet_receive_timeout,
        "chunk_receive_timeout_ms": chunk_receive_timeout,
    }
    plain = {
        "proxy_from": proxy_from,
        "allow": allow,
        "max_connections": max_connections,
        "max_connections_per_address": max_connections_per_address,
        "accept_rate": accept_rate,
        "max_sender_share": max_sender_share,
        "max_window_events": max_window_events,
        "max_pairs": max_pairs,
        "max_unacked_windows": max_unacked_windows,
        "no_window": no_window,
        "durable_links": durable_links,
        "bind_identity": bind_identity,
        "max_links": max_links,
        "receive_window": receive_window,
        "max_channels": max_channels,
        "max_channel_ids": max_channel_ids,
        "max_message_parts": max_message_parts,
        "max_entities": max_entities,
        "max_requests": max_requests,
        "ca": ca,
        "crl": crl,
        "cert": cert,
        "key": key,
        "client_auth": client_auth,
        "identity": identity,
        "tokens_file": tokens_file,
        "token_file": token_file,
        "ack": ack,
        "v1_ack": v1_ack,
        "on_invalid": on_invalid,
        "allow_unsafe_filesystem": allow_unsafe_filesystem,
        "group": group,
    }
    options: dict[str, float | str] = {
        name: size(text, option_of(name)) for name, text in sizes.items() if text is not None
    }
    options |= {
        name: milliseconds(text, option_of(name))
        for name, text in times.items()
        if text is not None
    }
    options |= {
        name: timer(text, option_of(name)) for name, text in timers.items() if text is not None
    }
    options |= {name: value for name, value in plain.items() if value is not None}
    if discard:
        sys.stderr.write("ackline: --discard: EVENTS ARE ACKNOWLEDGED AND THROWN AWAY\n")
    directory = None if spool is None else Path(spool)
    places = (urls or [], connect or [])
    sys.exit(_run(places, directory, options, as_json=as_json))


def _check_choices(choices: dict[str, tuple[str | None, set[str]]]) -> None:
    for option, (value, allowed) in choices.items():
        if value is not None and value not in allowed:
            fail(f"{option} is {' or '.join(sorted(allowed))}, not {value!r}", USAGE)


def _run(
    places: tuple[list[str], list[str]],
    spool: Path | None,
    options: dict[str, float | str],
    *,
    as_json: bool,
) -> int:
    stopping = Stopping()
    stopping.on_signals()
    allow_files(int(options.get("max_connections", _MAX_CONNECTIONS)))
    try:
        urls, connect = places
        receiver = Receiver(
            urls, connect=connect, spool=spool, discard=spool is None, options=options
        )
    except UsageError as error:
        fail(as_written(str(error), receive), USAGE)
    except AcklineError as error:
        code = getattr(error, "code", None)
        fail(f"{code}: {error}" if code else error, FAILED)
    show: _Show = _JsonLines() if as_json else LiveLine(is_kept=spool is not None)
    ended = threading.Event()
    thread = threading.Thread(target=_show_lines, args=(receiver, show, ended), daemon=True)
    thread.start()
    try:
        failure = _wait(receiver, stopping)
        is_lost = failure is not None and failure.startswith("spool.")
        unacked = receiver.abort() if is_lost else receiver.stop()
        _ignore_signals()
    except _SecondSignal:
        _ignore_signals()
        unacked = receiver.abort()
        sys.stderr.write(f"ackline: stopped at once: {unacked} windows are not acknowledged\n")
        ended.set()
        thread.join(_LAST_LINES)
        return UNACKED
    ended.set()
    thread.join(_LAST_LINES)
    if failure is not None:
        fail(failure, DISK if is_lost else FAILED)
    if unacked:
        sys.stderr.write(f"ackline: {unacked} windows are not acknowledged: they come again\n")
    return UNACKED if unacked else 0


def _wait(receiver: Receiver, stopping: Stopping) -> str | None:
    """Waits for a signal (None), or until the receiver gives up: why."""
    # A signal may reach a native thread, and then it does not end a wait of this one.
    while not stopping.wait(_SIGNAL_CHECK):
        if (failure := receiver.failure()) is not None:
            return failure
    return None


def _ignore_signals() -> None:
    """The end is decided: nothing is left to hurry."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _show_lines(receiver: Receiver, show: _Show, ended: threading.Event) -> None:
    """Shows the receiver's lines in a thread of their own: a slow reader delays nothing else.

    The receiver keeps a bounded number of lines and counts those that a slow reader missed.
    """
    while True:
        was_ended = ended.is_set()
        line = receiver.next_line(timeout=0.0 if was_ended else _WAIT)
        if line is not None:
            show.line(line)
        elif was_ended:
            show.end()
            return


class _JsonLines:
    """Writes to the descriptor itself: a buffer's lock would block the end of the process."""

    def __init__(self) -> None:
        self._is_open = True

    def line(self, line: str) -> None:
        data = escaped(line).encode() + b"\n"
        while data and self._is_open:
            try:
                data = data[os.write(1, data) :]
            except OSError:
                self._is_open = False

    def end(self) -> None:
        pass
