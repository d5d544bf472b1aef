"""`ackline receive`: listens, keeps, acknowledges; reports as a live line or JSON lines."""

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
from ackline.cli.options import receiver_options, with_options
from ackline.cli.terminal import escaped
from ackline.cli.values import DISK, FAILED, UNACKED, USAGE, as_written, fail
from ackline.exceptions import AcklineError, UsageError
from ackline.receiver import Receiver

__all__ = ["receive"]

_WAIT = 0.2
_SIGNAL_CHECK = 0.1
"""Seconds between checks for signals."""
_LAST_LINES = 2.0
_MAX_CONNECTIONS = 10_000
"""The default of --max-connections."""


class Stopping:
    """Whether a signal has requested the end; the second signal is raised.

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
        """Waits for the first signal; returns whether it came."""
        try:
            self._asked.get(timeout=seconds)
        except Empty:
            return False
        return True


class _SecondSignal(BaseException):
    """A second signal: the user does not want to wait any longer."""


class _Show(Protocol):
    """Shows each of the receiver's lines, in the thread that reads them."""

    def line(self, line: str) -> None: ...

    def end(self) -> None: ...


_Urls = Annotated[
    list[str] | None,
    typer.Argument(
        help="Where to listen: lumberjack://127.0.0.1:5044, lumberjack+tls://…, "
        "relink://127.0.0.1:5100/NAME (without NAME: the endpoint without one), "
        "bpmux://127.0.0.1:5200, reactive://127.0.0.1:5210/PUBLISHER (each client that connects is "
        "subscribed to), micromsg://127.0.0.1:8334 (messages to any destination); port 0 is "
        "allowed. Options of the protocol may stand in the query: ?ping_after=5s."
    ),
]
_Connect = Annotated[
    list[str] | None,
    typer.Option(
        help="A sender to connect to, for ever, and to receive from: "
        "relink://host:port/NAME, bpmux://host:port (?stream=TEXT opens a stream there), "
        "reactive://host:port/PUBLISHER (until the publisher completes the stream), "
        "micromsg://host:port/TOPIC?filter=level%3E%3DN3 (a topic or a queue of a broker, with a "
        "filter or without); may be repeated."
    ),
]
_Spool = Annotated[str | None, typer.Option(help="Directory to keep events in.")]
_Discard = Annotated[
    bool,
    typer.Option("--discard", help="Count and acknowledge WITHOUT keeping, for measuring."),
]
_AsJson = Annotated[bool, typer.Option("--json", help="JSON lines alone on standard output.")]


def receive(
    context: typer.Context,
    urls: _Urls = None,
    connect: _Connect = None,
    spool: _Spool = None,
    discard: _Discard = False,  # noqa: FBT002 (a flag)
    as_json: _AsJson = False,  # noqa: FBT002 (a flag)
    **options: str | bool | None,
) -> None:
    """Receives events, keeps them durably in a spool, then acknowledges them.

    Ends with 0 after SIGINT or SIGTERM when everything received was acknowledged; with 4, and the
    number of windows left, if some are unacknowledged after --drain-timeout or at a second signal;
    with 74 when the disk failed; 2 for a wrong command line, 1 when it could not start.
    """
    if (spool is None) != discard:
        fail("choose --spool DIR to keep events, or --discard to count without keeping", USAGE)
    if spool == "":  # as a path "" is the current directory
        fail("--spool is empty: it takes a directory", USAGE)
    given = {name: value for name, value in options.items() if value is not None}
    ack, on_invalid = given.get("ack", "durable"), given.get("on_invalid")
    waits_for_commit = str(ack).startswith("committed=")
    if discard and waits_for_commit:
        fail("--ack committed=NAME needs --spool DIR to commit from", USAGE)
    if discard and on_invalid == "quarantine":
        fail("--on-invalid quarantine needs --spool DIR: it keeps the input there", USAGE)
    check_needs(
        Given(
            named=of_command_line(context),
            urls=urls or [],
            connect=connect or [],
            is_kept=spool is not None,
            keeps_links=given.get("durable_links", True) is True,
            waits_for_commit=waits_for_commit,
            has_quarantine=on_invalid == "quarantine",
        )
    )
    directory = None if spool is None else Path(spool)
    places = (urls or [], connect or [])
    sys.exit(_run(places, directory, given, as_json=as_json))


with_options(receive, receiver_options())


def _run(
    places: tuple[list[str], list[str]],
    spool: Path | None,
    options: dict[str, str | bool],
    *,
    as_json: bool,
) -> int:
    stopping = Stopping()
    stopping.on_signals()
    wanted = str(options.get("max_connections", ""))
    allow_files(int(wanted) if wanted.isdecimal() else _MAX_CONNECTIONS)
    try:
        urls, connect = places
        receiver = Receiver(
            urls, connect=connect, spool=spool, discard=spool is None, options=options
        )
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    except AcklineError as error:
        code = getattr(error, "code", None)
        fail(f"{code}: {error}" if code else error, FAILED)
    if spool is None:
        sys.stderr.write("ackline: --discard: EVENTS ARE ACKNOWLEDGED AND THROWN AWAY\n")
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
        left = f"ackline: {unacked} windows are not acknowledged"
        sys.stderr.write(f"{left}: senders send them again, publishers do not\n")
    return UNACKED if unacked else 0


def _wait(receiver: Receiver, stopping: Stopping) -> str | None:
    """Waits for a signal (None), or until the receiver gives up; returns the reason."""
    # A signal may reach a native thread, and then it does not end a wait of this thread.
    while not stopping.wait(_SIGNAL_CHECK):
        if (failure := receiver.failure()) is not None:
            return failure
    return None


def _ignore_signals() -> None:
    """Ignores further signals: the end is decided, and nothing can hurry it."""
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
    """Writes directly to the descriptor: a buffer's lock would block the end of the process."""

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
