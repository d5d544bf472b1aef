"""`ackline send`: JSON lines to a receiver, acknowledged or counted as not."""

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, Protocol, Self

import typer

from ackline import lumberjack
from ackline._core import MAX_JSON_BYTES, LumberjackRoom, LumberjackSender
from ackline.cli.needs import PINGS, RELINK
from ackline.cli.send_relink import RelinkSending, Target, is_relink, target_of
from ackline.cli.values import (
    FAILED,
    USAGE,
    as_written,
    fail,
    milliseconds,
    option_of,
    size,
    timer,
    with_dashes,
)
from ackline.exceptions import AcklineError, TransportError, UsageError

__all__ = ["send"]

_CONNECT = 10.0
_LAST_BYTES = 1.0
"""Seconds for the receiver's end of a connection on which everything is acknowledged."""
_SLACK = 4096
"""White space around an event that is not counted."""
_LINGER = 1.0
"""Seconds that a line of a pipe waits for others to go with."""
_CHUNK = 1 << 16
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKOFF = 60.0
"""Seconds of --backoff-max where it is off."""
_OF_BOTH = ("batch_events", "batch_bytes", "ca", "cert", "key", "server_name")
_OF_LUMBERJACK = (
    "version",
    "buffer_events",
    "buffer_bytes",
    "max_in_flight",
    "max_in_flight_events",
    "max_in_flight_bytes",
    "slow_start",
    "cumulative",
    "accept_count_acks",
    "read_timeout",
    "progress_timeout",
    "backoff_min",
    "ttl",
    "compression",
)
_SHOWN = 20
"""Bad lines told one by one; the rest is counted."""


def send(  # noqa: PLR0913, PLR0917 (each is an option of the command)
    context: typer.Context,
    url: Annotated[
        str,
        typer.Argument(
            help="Where to send: lumberjack://127.0.0.1:5044, also +tls; several URLs, or hosts of "
            "one, with commas. Or relink://127.0.0.1:5100/NAME."
        ),
    ],
    file: Annotated[
        str,
        typer.Argument(
            help="A file of JSON lines (for Relink of any lines), or - for standard input, whose "
            "lines wait a second for others to go with."
        ),
    ],
    channel: Annotated[
        str | None,
        typer.Option(help="Relink: the channel's id in hex.", show_default="00000000"),
    ] = None,
    version: Annotated[int, typer.Option(help="The protocol's version.", min=1, max=2)] = 2,
    batch_events: Annotated[
        int, typer.Option("--batch-events", "--window", help="Events in a window.", min=1)
    ] = 2048,
    batch_bytes: Annotated[
        str, typer.Option(help="Bytes in a window, before compression; a larger event goes alone.")
    ] = "4MiB",
    buffer_events: Annotated[
        int | None,
        typer.Option(
            help="Events taken from the file and not acknowledged, at least one window.",
            show_default="what all hosts may have in flight, and a window each",
            min=1,
        ),
    ] = None,
    buffer_bytes: Annotated[
        str | None,
        typer.Option(help="Their bytes.", show_default="for as many windows, 16MiB each at least"),
    ] = None,
    max_in_flight: Annotated[
        int,
        typer.Option(
            "--max-in-flight",
            "--in-flight",
            help="Windows sent to a host and not acknowledged.",
            min=1,
        ),
    ] = 2,
    max_in_flight_events: Annotated[
        int | None,
        typer.Option(help="Events sent to a host and not acknowledged.", show_default="off", min=1),
    ] = None,
    max_in_flight_bytes: Annotated[
        str | None, typer.Option(help="Their bytes.", show_default="off")
    ] = None,
    slow_start: Annotated[
        int | None,
        typer.Option(help="Events in the first window; they grow and shrink with success.", min=1),
    ] = None,
    cumulative: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option(
            "--cumulative", help="Number events on and on instead of from 1 in each window."
        ),
    ] = False,
    accept_count_acks: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option(
            "--accept-count-acks",
            help="With --cumulative, also take the number of events for an acknowledgement.",
        ),
    ] = False,
    read_timeout: Annotated[
        str, typer.Option(help="Silence of a host that owes an acknowledgement; off.")
    ] = "30s",
    progress_timeout: Annotated[
        str, typer.Option(help="Time without a growing acknowledgement; off.")
    ] = "5m",
    backoff_min: Annotated[
        str, typer.Option(help="The longest first wait before a failed host is tried again.")
    ] = "1s",
    backoff_max: Annotated[str, typer.Option(help="The longest wait of all.")] = "60s",
    ttl: Annotated[
        str, typer.Option(help="Age at which a connection is made anew, such as 10m.")
    ] = "off",
    compression: Annotated[int, typer.Option(help="zlib level; 0 sends plain.", min=0, max=9)] = 3,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds to wait for an acknowledgement, also for a receiver that is away.", min=0
        ),
    ] = 60.0,
    max_json_bytes: Annotated[
        str, typer.Option(help="Bytes of an event, 16MiB at the most: longer lines are not sent.")
    ] = "16MiB",
    ca: Annotated[
        str | None, typer.Option(help="For +tls: a PEM file of certificates to trust.")
    ] = None,
    cert: Annotated[str | None, typer.Option(help="For +tls: our own certificate.")] = None,
    key: Annotated[str | None, typer.Option(help="For +tls: its key.")] = None,
    server_name: Annotated[
        str | None, typer.Option(help="For +tls: the name in the server's certificate.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Relink: a directory that keeps the link, so that the same command goes on with "
            "the same file where it was, also after a kill -9.",
            show_default="off",
        ),
    ] = None,
    as_json: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--json", help="One JSON line on standard output at the end.")
    ] = False,
) -> None:
    """Sends each line of a file as one event, over connections that are made again by themselves.

    A line that is too long or not JSON is named and not sent; what stands before and after it is.
    A line ends with a newline alone: white space around an event, also a carriage return, is no
    part of its JSON; for Relink each line is a message as it stands, and acknowledged is consumed.

    Ends with 0 when all are acknowledged, 1 when some are not (with their number), 2 for a wrong
    command line, 130 and 143 after SIGINT and SIGTERM, which also tell the numbers.
    """
    _check_options(context, url)
    limit = size(max_json_bytes, "--max-json-bytes")
    if not 1 <= limit <= MAX_JSON_BYTES:
        fail(f"--max-json-bytes is {limit}; it is from 1 to {MAX_JSON_BYTES}", USAGE)
    if file != "-" and not Path(file).is_file():
        fail(f"{file} is not a file", USAGE)
    sizes = {
        "batch_bytes": batch_bytes,
        "buffer_bytes": buffer_bytes,
        "max_in_flight_bytes": max_in_flight_bytes,
    }
    times = {"backoff_min": backoff_min, "backoff_max": backoff_max}
    timers = {"read_timeout": read_timeout, "progress_timeout": progress_timeout, "ttl": ttl}
    plain = {
        "version": version,
        "batch_events": batch_events,
        "buffer_events": buffer_events,
        "max_in_flight": max_in_flight,
        "max_in_flight_events": max_in_flight_events,
        "slow_start": slow_start,
        "cumulative": cumulative,
        "accept_count_acks": accept_count_acks,
        "compression": compression,
        "ca": ca,
        "cert": cert,
        "key": key,
        "server_name": server_name,
    }
    options: dict[str, Any] = {name: value for name, value in plain.items() if value is not None}
    options |= {
        name: size(text, option_of(name)) for name, text in sizes.items() if text is not None
    }
    options |= {
        name: milliseconds(text, option_of(name)) / 1000 or None for name, text in times.items()
    }
    options |= {name: timer(text, option_of(name)) / 1000 or None for name, text in timers.items()}
    for whole, window in (("buffer_events", "batch_events"), ("buffer_bytes", "batch_bytes")):
        if (room := options.get(whole, options[window])) < options[window]:
            least = f"{option_of(window)} is {options[window]}"
            fail(f"{option_of(whole)} is {room}; it holds one window at least: {least}", USAGE)
    target = target_of(url, channel) if is_relink(url) else None
    if target is not None and state is not None:
        _check_state(target, file)
        options["state"] = state
    begin = time.monotonic()
    given = _Pipe(sys.stdin.fileno()) if file == "-" else None
    source = nullcontext(given) if given else Path(file).open("rb")  # noqa: SIM115 (entered below)
    reason: AcklineError | _Stopped | None = None
    try:
        with source as opened, _Bar(file) as bar:
            lines = _Lines(opened, "standard input" if given else file, limit)
            sending: _AnySending
            if target is None:
                sending = _Sending(lines, url, options, timeout)
            else:
                lines.is_json = False
                sending = _relink(lines, target, options, timeout)
            reason = _move(sending, bar)
            if isinstance(reason, AcklineError) and given is None:
                # A pipe may have no end: what was not read of it is not counted.
                lines.skip_rest()
    except UsageError as error:
        # The bar is gone: nothing was sent that it could tell of.
        fail(as_written(str(error), send), USAGE)
    seconds = time.monotonic() - begin
    _end(lines, sending, seconds, reason, as_json=as_json)


def _check_options(context: typer.Context, url: str) -> None:
    """Refuses what the URL's protocol has not."""
    wrong, protocol = (
        (_OF_LUMBERJACK, "Lumberjack") if is_relink(url) else (["channel", "state"], "Relink")
    )
    for name in wrong:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            fail(f"{option_of(name)} is an option of {protocol}", USAGE)


def _check_state(target: Target, file: str) -> None:
    """Refuses what cannot be gone on with."""
    if file == "-":
        fail("--state needs a file: what was read of standard input cannot be read again", USAGE)
    if target.is_transactional:
        fail("--state is for a URL without connector_transactions", USAGE)


def _relink(
    lines: "_Lines", target: Target, options: dict[str, Any], timeout: float
) -> RelinkSending:
    """The sending of messages, with those of the options that it has."""
    kept = {name: options[name] for name in (*_OF_BOTH, "state") if name in options}
    kept["reconnect_max"] = options["backoff_max"] or _BACKOFF
    return RelinkSending(lines, target, kept, timeout)


class _AnySending(Protocol):
    """Sends windows and knows how many of their events are acknowledged."""

    acked: int
    possible_repeats: int

    def run(self) -> Generator[int, None, None]: ...


def _move(sending: _AnySending, bar: "_Bar") -> "AcklineError | _Stopped | None":
    """Sends everything, unless a signal or an error ends it: which.

    Raises:
        UsageError: An option or the URL is wrong.
    """
    before = [(number, signal.signal(number, _stop)) for number in _SIGNALS]
    try:
        with closing(sending.run()) as progress:
            for sent_bytes in progress:
                bar.show(sent_bytes, sending.acked)
    except UsageError:
        raise
    except (AcklineError, _Stopped) as reason:
        return reason
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    return None


def _end(
    lines: "_Lines",
    sending: _AnySending,
    seconds: float,
    reason: "AcklineError | _Stopped | None",
    *,
    as_json: bool,
) -> NoReturn:
    """Tells the numbers and ends the process."""
    acked, repeats = sending.acked, sending.possible_repeats
    not_acked = lines.read - acked
    if as_json:
        line = {"event": "sent", "events": lines.read, "acked": acked, "not_acked": not_acked}
        line |= {"possible_repeats": repeats, "seconds": round(seconds, 3)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    if lines.bad > _SHOWN:
        sys.stderr.write(f"ackline: {lines.bad - _SHOWN} more lines were not sent\n")
    code = 128 + reason.number if isinstance(reason, _Stopped) else FAILED
    if not_acked:
        text = with_dashes(str(reason), (*RELINK, *PINGS))
        why = f": {text}" if reason else f": {lines.bad} lines were not sent"
        fail(f"{not_acked} of {lines.read} events not acknowledged{why}", code)
    if reason:
        fail(with_dashes(str(reason), (*RELINK, *PINGS)), code)
    again = f", {repeats} of them sent more than once" if repeats else ""
    sys.stderr.write(f"{acked} events acknowledged{again}\n")
    sys.exit(0)


class _Stopped(Exception):  # noqa: N818 (a wish, no error)
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """Ends the sending; the next signal ends the process."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise _Stopped(number)


class _Source(Protocol):
    def readline(self, most: int, /) -> bytes: ...


class _Pipe:
    """What may pause between its lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = bytearray()
        self._searched = 0
        self._is_over = False

    def readline(self, most: int, /) -> bytes:
        """A line with its end, `most` bytes of a longer one, nothing at the end of the input."""
        while (length := self._line(most)) is None:
            self._fill()
        line = bytes(self._held[:length])
        del self._held[:length]
        self._searched = 0
        return line

    def has_line(self, most: int, seconds: float) -> bool:
        """Whether `readline` has something within this time."""
        deadline = time.monotonic() + seconds
        while self._line(most) is None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return False
            self._fill()
        return True

    def _line(self, most: int) -> int | None:
        """The length of the next line, once it is known."""
        found = self._held.find(b"\n", self._searched, most)
        if found >= 0:
            return found + 1
        self._searched = min(len(self._held), most)
        return self._searched if self._is_over or self._searched == most else None

    def _fill(self) -> None:
        chunk = os.read(self._descriptor, _CHUNK)
        self._held += chunk
        self._is_over = not chunk


class _Bar:
    """A progress bar on standard error, which leaves nothing behind when an error is raised."""

    def __init__(self, file: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

        total = None if file == "-" else Path(file).stat().st_size
        columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[acked]} acked"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
        self._task = self._progress.add_task("", total=total, acked=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        if raised is None:
            self._progress.stop()
            return
        self._progress.live.transient = True
        self._progress.live.stop()

    def show(self, sent_bytes: int, acked: int) -> None:
        self._progress.update(self._task, completed=sent_bytes, acked=f"{acked:,}")


class _Lines:
    """The events of a file: what was read, and which lines cannot be sent."""

    def __init__(self, source: _Source, name: str, limit: int) -> None:
        self._source = source
        self._name = name
        self._limit = limit
        self._number = 0
        self._begun: float | None = None
        self.is_json = True
        """Whether blank lines and those that are not JSON are passed over."""
        self.read = 0
        self.bad = 0

    def windows(self, most: int, most_bytes: int) -> Iterator["_Window"]:
        """Windows to be sent, none of them empty."""
        window, room = _Window(), LumberjackRoom(most, most_bytes)
        for event, file_bytes in self._good():
            if window.events and (event is None or not room.takes(len(event))):
                yield window
                window, room = _Window(), LumberjackRoom(most, most_bytes)
            if event is None:
                continue
            if not window.events:
                self._begun = time.monotonic()
                room.takes(len(event))
            window.events.append(event)
            window.file_bytes += file_bytes
            if room.is_full:
                self._begun = None
                yield window
                window, room = _Window(), LumberjackRoom(most, most_bytes)
        if window.events:
            yield window

    def skip_rest(self) -> None:
        """Counts the lines that nobody sends any more."""
        for line, _ in self._lines():
            self.read += line != b"" or not self.is_json

    def _good(self) -> Iterator[tuple[bytes | None, int]]:
        """Events to be sent, each with the bytes of the file up to its end; None at a pause."""
        passed = 0
        for event, length in self._lines():
            passed += length
            if not length:
                yield None, 0
            if event == b"" and (self.is_json or not length):
                continue
            self.read += 1
            why = self._too_long(length) if event is None else self._refused(event)
            if event is None or why is not None:
                self._tell(str(why))
                continue
            yield event, passed
            passed = 0

    def _lines(self) -> Iterator[tuple[bytes | None, int]]:
        """Lines without their ends, None for one above any limit, and their bytes in the file.

        Where a window has begun and the next line is late there is one of no bytes.
        """
        most = self._limit + _SLACK
        while True:
            if self._is_late(most):
                self._begun = None
                yield b"", 0
            if not (line := self._source.readline(most)):
                return
            self._number += 1
            if len(line) < most or line.endswith(b"\n"):
                yield self._event(line), len(line)
                continue
            length = len(line)
            while not line.endswith(b"\n") and (line := self._source.readline(most)):
                length += len(line)
            yield None, length

    def _event(self, line: bytes) -> bytes:
        return line.strip() if self.is_json else line.removesuffix(b"\n")

    def _is_late(self, most: int) -> bool:
        if self._begun is None or not isinstance(self._source, _Pipe):
            return False
        left = self._begun + _LINGER - time.monotonic()
        return not self._source.has_line(most, left)

    def _too_long(self, length: int) -> str:
        return f"{length} bytes, the limit is {self._limit}; --max-json-bytes changes it"

    def _refused(self, event: bytes) -> str | None:
        if len(event) > self._limit:
            return self._too_long(len(event))
        if not self.is_json:
            return None
        try:
            _JSON.decode(event.decode())
        except json.JSONDecodeError as error:
            return f"not JSON: {error.msg} at column {error.colno}"
        except ValueError as error:
            return f"not JSON: {error}"
        except RecursionError:
            return "JSON of too many levels"
        return None

    def _tell(self, why: str) -> None:
        self.bad += 1
        if self.bad <= _SHOWN:
            sys.stderr.write(f"ackline: {self._name}, line {self._number}: not sent: {why}\n")


@dataclass(slots=True)
class _Window:
    events: list[bytes] = field(default_factory=list)
    file_bytes: int = 0


class _Sending:
    """Sends windows and knows how many of their events are acknowledged."""

    def __init__(self, lines: _Lines, url: str, options: dict[str, Any], timeout: float) -> None:
        self._lines = lines
        self._url = url
        self._options = options
        self._timeout = timeout
        self.acked = 0
        self.possible_repeats = 0

    def run(self) -> Generator[int, None, None]:
        """Sends everything; yields the bytes of the file that are acknowledged."""
        options = self._options
        buffer = {"buffer_events": None, "buffer_bytes": None}
        attempt = {"connect_timeout": min(_CONNECT, self._timeout) or _CONNECT}
        core = LumberjackSender([self._url], attempt | buffer | options)
        writer = lumberjack.Writer(core)
        patience = 0.0
        try:
            if core.wait("connected", self._timeout):
                _tell_if_away(core, self._timeout)
            yield from self._send(writer)
            patience = _LAST_BYTES
        finally:
            # What is not acknowledged by now has had its time.
            writer.close(timeout=patience)
            self._count(writer)

    def _send(self, writer: lumberjack.Writer) -> Iterator[int]:
        pending: deque[tuple[int, int]] = deque()
        done = 0
        most, most_bytes = self._options["batch_events"], self._options["batch_bytes"]
        for window in self._lines.windows(most, most_bytes):
            number = writer.send_window(window.events, timeout=self._timeout)
            pending.append((number, window.file_bytes))
            while pending and writer.is_acknowledged(pending[0][0]):
                done += pending.popleft()[1]
            self._count(writer)
            yield done
        for number, file_bytes in pending:
            writer.wait_acknowledged(number, timeout=self._timeout)
            done += file_bytes
            self._count(writer)
            yield done

    def _count(self, writer: lumberjack.Writer) -> None:
        """Counts to the event: a receiver may acknowledge a part of a window."""
        stats = writer.stats()
        self.acked = stats["accepted"] - stats["unacknowledged"]
        self.possible_repeats = stats["possible_repeats"]


def _tell_if_away(core: LumberjackSender, timeout: float) -> None:
    try:
        core.check_connected()
    except TransportError:
        # Why stands in the warning before it.
        sys.stderr.write(f"ackline: no receiver is reached yet; trying for {timeout:g} s\n")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


# Numbers are not looked at: as floats they are cheap, however long.
_JSON = json.JSONDecoder(parse_int=float, parse_constant=_no_constant)
