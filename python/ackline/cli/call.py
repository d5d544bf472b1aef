"""`ackline call`: one request of bpmux, and its response on standard output."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from ackline import bpmux
from ackline.cli.options import check_option, options_of, with_options
from ackline.cli.reaching import Unreached, reaching
from ackline.cli.standard import standard_input
from ackline.cli.terminal import print_text, text_of
from ackline.cli.values import (
    FAILED,
    LATE,
    LEAST,
    UNREACHED,
    USAGE,
    as_written,
    check_timeout,
    fail,
    place,
    with_dashes,
)
from ackline.exceptions import (
    AcklineError,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    RequestClosed,
    UsageError,
)

__all__ = ["call"]

_TABLE = "bpmux.connect"
_NOT_OPTIONS = (
    "connect_timeout",
    "credit",
    "max_entities",
    "max_requests",
    "memory",
    "parts",
    "send_bytes",
)
"""Options that the command sets itself, or that do nothing for one request."""

_CLOSED = 3
"""Exit code: the peer has closed the request without a response, or refuses all requests."""
_GOODBYE = 1.0
"""Seconds for the end of a connection after the response, or after the request was given up."""


def call(
    url: Annotated[
        str, typer.Argument(help="The peer to ask: bpmux://127.0.0.1:5200, also +tls and +unix.")
    ],
    payload: Annotated[
        str,
        typer.Argument(help="The request's payload; - reads standard input, @FILE a file."),
    ],
    timeout: Annotated[
        float, typer.Option(help="Seconds for the connection and the response.", min=0)
    ] = 60.0,
    as_json: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--json", help="One JSON line instead of the response's bytes.")
    ] = False,
    **given: str | bool | None,
) -> None:
    """Sends one request and writes its response to standard output, byte for byte.

    Ends with 0 when it was answered; 3 when the peer closed the request without a response: its
    payload, the reason, is printed on standard error; 124 when nothing came within --timeout; 69
    when nobody could be reached; 74 when standard output cannot be written; 1 when the connection
    broke; 2 for a wrong command line; 130 and 143 after SIGINT and SIGTERM, which give the request
    up.
    """
    check_timeout(timeout)
    options = _options(timeout, {name: value for name, value in given.items() if value is not None})
    asked = _payload(payload)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    begin = time.monotonic()
    told = _Told(as_json=as_json, seconds=lambda: round(time.monotonic() - begin, 3))
    try:
        answer = _answer(url, asked, options, begin + timeout)
    except (RequestClosed, PeerCancelled) as error:
        told.closed(error.payload)
    except _Stopped as stopped:
        told.failed("stopped", str(stopped), 128 + stopped.number)
    except LinkTimeout:
        told.failed("timeout", f"no response within {timeout:g} s", LATE)
    except Unreached as error:
        told.failed("unreached", str(error), UNREACHED)
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    except ProtocolError as error:
        text = with_dashes(error, options) + place(error.code, error.offset)
        told.failed(error.code, text, FAILED)
    except AcklineError as error:
        text = with_dashes(error, options)
        told.failed(getattr(error, "code", "connection"), text, FAILED)
    told.answered(answer)


with_options(call, options_of(_TABLE), but=_NOT_OPTIONS)


def _options(timeout: float, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of the connection; its memory holds two of the largest responses."""
    try:
        largest = check_option(_TABLE, "max_payload_bytes", given.get("max_payload_bytes"))
    except UsageError as error:
        fail(as_written(error), USAGE)
    own = {"connect_timeout": max(timeout, LEAST), "memory": max(_MEMORY, 2 * largest)}
    return given | own


def _answer(url: str, asked: bytes, options: dict[str, Any], until: float) -> bytes:
    with reaching(until):
        connection = bpmux.connect(url, **options)
    try:
        return connection.call(asked, timeout=max(until - time.monotonic(), LEAST))
    except UsageError as error:
        if error.code == "top_level_closed":
            raise RequestClosed(str(error), connection.sink.cancelled or b"") from None
        raise
    finally:
        # This reports the end of a request that nobody waits for any more.
        with suppress(AcklineError):
            connection.shutdown(timeout=_GOODBYE)
        connection.abort()


class _Stopped(BaseException):
    """A signal requested the end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """Gives the request up; the next signal ends the process."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    raise _Stopped(number)


def _payload(text: str) -> bytes:
    if text == "-":
        return standard_input().read()
    if not text.startswith("@"):
        return os.fsencode(text)
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        fail(f"{text[1:]}: {error.strerror}; a payload that begins with @ goes through -", USAGE)


class _Told:
    """The output and the exit code at the end of the command."""

    def __init__(self, *, as_json: bool, seconds: Callable[[], float]) -> None:
        self._as_json = as_json
        self._seconds = seconds

    def answered(self, payload: bytes) -> NoReturn:
        if self._as_json:
            self._line("response", **_shown(payload))
        else:
            print_text(payload)
            sys.stdout.flush()
        sys.exit(0)

    def closed(self, payload: bytes) -> NoReturn:
        if self._as_json:
            self._line("closed", **_shown(payload))
        fail(f"the peer has closed the request: {text_of(payload)}", _CLOSED)

    def failed(self, code: str, message: str, exit_code: int) -> NoReturn:
        if self._as_json:
            self._line("failed", code=code, message=message)
        fail(message, exit_code)

    def _line(self, event: str, **members: Any) -> None:  # noqa: ANN401 (any JSON value)
        line = {"event": event} | members | {"seconds": self._seconds()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _shown(payload: bytes) -> dict[str, Any]:
    """Returns a payload as text, or as hex if it is no text."""
    try:
        shown = {"payload": payload.decode()}
    except UnicodeDecodeError:
        shown = {"payload_hex": payload.hex()}
    return shown | {"bytes": len(payload)}


_MEMORY = 256 << 20
"""Bytes of received payload that may be held, by default."""
