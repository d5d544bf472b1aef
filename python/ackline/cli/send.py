"""`ackline send`: JSON lines to a receiver, acknowledged or counted as not."""

import json
import signal
import sys
import time
from collections.abc import Generator
from contextlib import closing, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, Protocol

import typer

from ackline._core import MAX_JSON_BYTES
from ackline.cli.bar import Bar
from ackline.cli.lines import SHOWN, Lines, Pipe
from ackline.cli.needs import RELINK, check_protocol, of_command_line, one_of
from ackline.cli.options import options_of, values_of, with_options
from ackline.cli.send_bpmux import BpmuxSending
from ackline.cli.send_lumberjack import LumberjackSending
from ackline.cli.send_micromsg import MicromsgSending
from ackline.cli.send_relink import RelinkSending, Target, target_of
from ackline.cli.standard import standard_input
from ackline.cli.values import (
    FAILED,
    USAGE,
    as_written,
    fail,
    option_of,
    place,
    size,
    with_dashes,
)
from ackline.exceptions import AcklineError, ProtocolError, UsageError

__all__ = ["send"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKOFF = 60.0
"""Seconds of --backoff-max if it is off."""
_OF_TLS = ("ca", "crl", "cert", "key", "server_name", "token_file")
_OF_ALL = ("batch_events", "batch_bytes", *_OF_TLS)
_OF_LUMBERJACK = (
    "version",
    "buffer_events",
    "buffer_bytes",
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
_OF = {
    "channel": ("relink",),
    "state": ("relink",),
    "max_in_flight": ("lumberjack", "bpmux"),
} | dict.fromkeys(_OF_LUMBERJACK, ("lumberjack",))
"""The protocols of each option that not every protocol has."""
_SCHEMES = ("lumberjack", "relink", "bpmux", "micromsg")
"""The protocols that events are sent by."""
_RANGES = 20
"""Runs of lines that are named; the rest is counted."""
_TABLE = options_of("lumberjack.connect")
_NOT_OPTIONS = ("connect_timeout", "receipts")
"""Options of connections that the command does not use."""
_NAMES = {"timeout", "state"} | {option.name for option in _TABLE} - set(_NOT_OPTIONS)
"""The options of the command; others can only stand in the URL, under their own names."""
_BUFFER = {
    "buffer_events": "the events that all hosts may have in flight, and a window for each",
    "buffer_bytes": "for as many windows, 16MiB each at least",
}
_OFF = ("read_timeout", "progress_timeout", "ttl", "compression", "backoff_max")
"""Options with a default that is not off: a None switches them off."""


_Url = Annotated[
    str,
    typer.Argument(
        help="The receivers: lumberjack://127.0.0.1:5044, also +tls; several URLs, or hosts of "
        "one URL, with commas. Or relink://127.0.0.1:5100/NAME, bpmux://127.0.0.1:5200, or "
        "micromsg://127.0.0.1:8334/DESTINATION, the name of a topic or a queue."
    ),
]
_File = Annotated[
    str,
    typer.Argument(
        help="A file of lines, of JSON for Lumberjack, or - for standard input; its lines wait up "
        "to a second for further ones to be sent with."
    ),
]
_Channel = Annotated[
    str | None,
    typer.Option(help="Relink: the channel's id in hex.", show_default="00000000"),
]
_Timeout = Annotated[
    float,
    typer.Option(
        help="Seconds to wait for an acknowledgement, also for a receiver that is away.", min=0
    ),
]
_MaxJsonBytes = Annotated[
    str, typer.Option(help="Bytes of an event, 16MiB at the most: longer lines are not sent.")
]
_State = Annotated[
    str | None,
    typer.Option(
        help="Relink: a directory that keeps the link, so that the same command goes on with "
        "the same file where it was, also after a kill -9.",
        show_default="off",
    ),
]
_AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON line on standard output at the end.")
]


def send(
    context: typer.Context,
    url: _Url,
    file: _File,
    channel: _Channel = None,
    timeout: _Timeout = 60.0,
    max_json_bytes: _MaxJsonBytes = "16MiB",
    state: _State = None,
    as_json: _AsJson = False,  # noqa: FBT002 (a flag)
    **given: str | bool | None,
) -> None:
    """Sends each line of a file as one event, over connections that are made again by themselves.

    A line that is too long or not JSON is reported and not sent; the lines before and after it are.
    A line ends with a newline alone: white space around an event, also a carriage return, is no
    part of its JSON. For Relink each line is a message, unchanged, and counts as acknowledged when
    it is consumed. For bpmux each line is a message too; each window has a sink, which is closed
    with the window's count, and the acknowledgement of this close acknowledges the window. For
    MicroMsg2 each line is a message to the destination of the URL, without properties.

    Ends with 0 when all are acknowledged, 1 when some are not (with their number), 2 for a wrong
    command line, 130 and 143 after SIGINT and SIGTERM; the numbers are printed then too.
    """
    scheme = one_of(url, _SCHEMES, {"reactive": "publish"})
    check_protocol(of_command_line(context), scheme, _OF)
    limit = size(max_json_bytes, "--max-json-bytes")
    if not 1 <= limit <= MAX_JSON_BYTES:
        fail(f"--max-json-bytes is {limit}; it is from 1 to {MAX_JSON_BYTES}", USAGE)
    if file != "-" and not Path(file).is_file():
        fail(f"{file} is not a file", USAGE)
    options = _options(given)
    target = target_of(url, channel) if scheme == "relink" else None
    if target is not None and state is not None:
        _check_state(target, file)
        options["state"] = state
    begin = time.monotonic()
    pipe = Pipe(standard_input().fileno()) if file == "-" else None
    source = nullcontext(pipe) if pipe else Path(file).open("rb")  # noqa: SIM115 (entered below)
    reason: AcklineError | _Stopped | None = None
    try:
        with source as opened, Bar(file) as bar:
            lines = Lines(opened, "standard input" if pipe else file, limit)
            lines.is_json = scheme == "lumberjack"
            sending = _sending(lines, target or url, scheme, options, timeout)
            reason = _move(sending, bar)
            if isinstance(reason, AcklineError) and pipe is None:
                # A pipe may have no end: its unread lines are not counted.
                lines.skip_rest()
    except UsageError as error:
        # The bar is gone, and nothing was sent that it could report.
        fail(as_written(error, options), USAGE)
    seconds = time.monotonic() - begin
    _end(lines, sending, seconds, reason, as_json=as_json)


def _sending(
    lines: Lines, to: str | Target, scheme: str, options: dict[str, Any], timeout: float
) -> "_AnySending":
    """Returns the sending of a protocol, with the options that apply to it."""
    if isinstance(to, Target):
        return _relink(lines, to, options, timeout)
    match scheme:
        case "bpmux":
            return BpmuxSending(lines, to, _kept(options, "max_in_flight"), timeout)
        case "micromsg":
            return MicromsgSending(lines, to, _kept(options), timeout)
    return LumberjackSending(lines, to, options, timeout)


with_options(send, _TABLE, but=_NOT_OPTIONS, defaults=_BUFFER)


def _options(given: dict[str, str | bool | None]) -> dict[str, Any]:
    """Returns the values of all options: the given ones, and the defaults of the others."""
    table = [option for option in _TABLE if option.name not in _NOT_OPTIONS]
    try:
        options = values_of("lumberjack.connect", table, given)
    except UsageError as error:
        fail(as_written(error), USAGE)
    for whole, window in (("buffer_events", "batch_events"), ("buffer_bytes", "batch_bytes")):
        if given[whole] is None:
            # The value follows from the number of hosts.
            options[whole] = None
        elif (room := options[whole] or options[window]) < options[window]:
            least = f"{option_of(window)} is {options[window]}"
            fail(f"{option_of(whole)} is {room}; it holds one window at least: {least}", USAGE)
    return {name: value for name, value in options.items() if value is not None or name in _OFF}


def _check_state(target: Target, file: str) -> None:
    """Refuses a state that the sending cannot resume from."""
    if file == "-":
        fail("--state needs a file: standard input cannot be read a second time", USAGE)
    if target.is_transactional:
        fail("--state is for a URL without connector_transactions", USAGE)


def _relink(
    lines: "Lines", target: Target, options: dict[str, Any], timeout: float
) -> RelinkSending:
    """Returns the sending of messages, with the options that apply to it."""
    kept = {name: options[name] for name in (*_OF_ALL, "state") if name in options}
    kept["reconnect_max"] = options["backoff_max"] or _BACKOFF
    return RelinkSending(lines, target, kept, timeout)


def _kept(options: dict[str, Any], *others: str) -> dict[str, Any]:
    """Returns the options that apply to a protocol: those of all, and these others."""
    kept = {name: options[name] for name in (*_OF_ALL, *others) if name in options}
    return kept | {"backoff_max": options["backoff_max"] or _BACKOFF}


class _AnySending(Protocol):
    """Sends windows and knows how many of their events are acknowledged."""

    acked: int
    possible_repeats: int

    def run(self) -> Generator[int, None, None]: ...


def _move(sending: _AnySending, bar: "Bar") -> "AcklineError | _Stopped | None":
    """Sends everything, unless a signal or an error ends it; returns that signal or error.

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
    lines: "Lines",
    sending: _AnySending,
    seconds: float,
    reason: "AcklineError | _Stopped | None",
    *,
    as_json: bool,
) -> NoReturn:
    """Reports the numbers and ends the process."""
    acked, repeats = sending.acked, sending.possible_repeats
    not_acked = lines.read - acked
    if as_json:
        line = {"event": "sent", "events": lines.read, "acked": acked, "not_acked": not_acked}
        line |= {"possible_repeats": repeats, "seconds": round(seconds, 3)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    if lines.bad > SHOWN:
        sys.stderr.write(f"ackline: {lines.bad - SHOWN} more lines were not sent\n")
    if not_acked and isinstance(sending, BpmuxSending):
        sys.stderr.write(f"ackline: not acknowledged: {_missing(sending.acked_lines, lines)}\n")
    code = 128 + reason.number if isinstance(reason, _Stopped) else FAILED
    if not_acked:
        why = _text(reason) if reason else f"{lines.bad} lines were not sent"
        fail(f"{not_acked} of {lines.read} events not acknowledged: {why}", code)
    if reason:
        fail(_text(reason), code)
    again = f", {repeats} of them sent more than once" if repeats else ""
    sys.stderr.write(f"{acked} events acknowledged{again}\n")
    sys.exit(0)


def _text(reason: "AcklineError | _Stopped") -> str:
    text = with_dashes(reason, _NAMES, peers=RELINK)
    if isinstance(reason, ProtocolError):
        return text + place(reason.code, reason.offset)
    return text


def _missing(acked: list[tuple[int, int]], lines: Lines) -> str:
    """Returns the lines that were read and are in none of these runs."""
    runs, next_line = [], 1
    for first, last in sorted(acked):
        if first > next_line:
            runs.append((next_line, first - 1))
        next_line = last + 1
    if next_line <= lines.number:
        runs.append((next_line, lines.number))
    texts = [f"{first} to {last}" if last > first else f"{first}" for first, last in runs]
    if (more := len(texts) - _RANGES) > 0:
        texts = [*texts[:_RANGES], f"and {more} more runs of lines"]
    return "lines " + ", ".join(texts)


class _Stopped(Exception):  # noqa: N818 (a request, no error)
    """A signal requested the end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """Ends the sending; the next signal ends the process."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise _Stopped(number)
