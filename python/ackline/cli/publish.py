"""`ackline publish`: a file or standard input as a publisher of Reactive Streams."""

import asyncio
import signal
import sys
import time
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import typer

from ackline._reactive_core import reactive_split
from ackline._table import nearest
from ackline.aio import reactive
from ackline.cli.elements import Element, described
from ackline.cli.files import allow_files
from ackline.cli.options import check_option, options_of, with_options
from ackline.cli.output import JsonOutput, Output, TextOutput
from ackline.cli.publish_sources import FORMATS, Source
from ackline.cli.publishing import Publishing
from ackline.cli.terminal import say
from ackline.cli.values import (
    FAILED,
    LATE,
    LEAST,
    UNREACHED,
    USAGE,
    as_written,
    check_timeout,
    fail,
    option_of,
    place,
    with_dashes,
)
from ackline.exceptions import (
    AcklineError,
    LinkTimeout,
    ProtocolError,
    TransportError,
    UsageError,
)

__all__ = ["publish"]

_LISTEN = options_of("reactive.listen")
_CONNECT = options_of("reactive.connect")
_OPTIONS = list({option.name: option for option in [*_LISTEN, *_CONNECT]}.values())
"""The options of both directions."""
_NOT_OPTIONS = (
    "connect_timeout",
    "max_unfinished_bytes",
    "max_unfinished_elements",
    "memory",
    "parts",
)
"""Options that the command sets itself, or that do nothing for a publisher."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


_Url = Annotated[
    str,
    typer.Argument(
        help="The peer and the publisher's name: reactive://127.0.0.1:5210/PUBLISHER, also "
        "+tls, or reactive+unix:///path?publisher=PUBLISHER. With --listen: where to listen; "
        "port 0 is allowed."
    ),
]
_File = Annotated[str, typer.Argument(help="A file, or - for standard input.")]
_Listen = Annotated[
    bool,
    typer.Option("--listen", help="Listen for subscribers instead of connecting to one."),
]
_Streams = Annotated[
    int | None,
    typer.Option(
        help="Number of streams after which the command ends. A file is published to each "
        "subscriber from its beginning, standard input to the first subscriber alone.",
        min=1,
        show_default="1; with --listen and a file: unlimited",
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        help="Seconds for the connection and the peer's subscription, and for the peer's "
        "goodbye after its last stream.",
        min=0,
    ),
]
_Form = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Form of the elements in the file: a line each, bytes in elements of up to 64 KiB "
        "(raw), or a line of base64 each.",
    ),
]
_Element = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Type of elements of a fixed size, one behind the other in a binary file or a "
        ".npy file: a number such as f64, or fields such as time:u64,value:f32.",
    ),
]
_AsJson = Annotated[bool, typer.Option("--json", help="JSON lines on standard output.")]


def publish(
    url: _Url,
    file: _File,
    listen: _Listen = False,  # noqa: FBT002 (a flag)
    streams: _Streams = None,
    timeout: _Timeout = 60.0,
    form: _Form = "lines",
    element: _Element = None,
    as_json: _AsJson = False,  # noqa: FBT002 (a flag)
    **given: str | bool | None,
) -> None:
    """Publishes a file or standard input; it is read as fast as the subscriber requests elements.

    Without --listen the command connects to a peer that subscribes, such as `ackline receive
    reactive://…/PUBLISHER`, which says goodbye when every element is kept. With --listen it serves
    subscribers, such as `ackline subscribe`, until SIGINT or SIGTERM, or for --streams streams.

    Ends with 0 when each of these streams was published to its end and its peer has said goodbye,
    or, if their number is unlimited, at SIGINT or SIGTERM; with 1 when a subscriber has cancelled a
    stream, the connection broke or the source cannot be read; 124 when a peer does not subscribe or
    say goodbye within --timeout; 69 when nobody could be reached; 2 for a wrong command line; 130
    and 143 after SIGINT and SIGTERM before the last stream has ended.
    """
    check_timeout(timeout)
    options = {name: value for name, value in given.items() if value is not None}
    _check_options(options, listens=listen)
    shape = described(element)
    _check_form(form, shape)
    try:
        at, name = reactive_split(url)
        limit = _number("max_element_bytes", options)
        if listen:
            allow_files(_number("max_connections", options))
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    source = Source(file, form, shape, limit)
    if source.is_standard_input and (streams or 1) > 1:
        fail("--streams needs a file: standard input can be read once", USAGE)
    if streams is None and (source.is_standard_input or not listen):
        streams = 1
    output: Output = JsonOutput() if as_json else TextOutput()
    patience = max(timeout, LEAST)
    publishing = Publishing(name, source, streams, output, patience)
    try:
        code = asyncio.run(_run(at, options, publishing, patience, listens=listen))
    except AcklineError as error:
        output.end()
        _fail(error, options)
    output.end()
    sys.exit(code)


with_options(publish, _OPTIONS, but=_NOT_OPTIONS)


def _check_options(options: dict[str, Any], *, listens: bool) -> None:
    """Refuses options of the other direction."""
    own = {option.name for option in (_LISTEN if listens else _CONNECT)}
    for name in options:
        if name not in own:
            why = "is for a command without --listen" if listens else "needs --listen"
            fail(f"{option_of(name)} {why}", USAGE)


def _check_form(form: str, shape: Element | None) -> None:
    if form not in FORMATS:
        words = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        fail(f"--format is {words}, not {form!r}{nearest(form, FORMATS)}", USAGE)
    if shape is not None and form != "lines":
        fail(f"--element reads a binary file: leave --format {form} out", USAGE)


def _number(name: str, options: dict[str, Any]) -> int:
    """Returns the number of an option of a listener, which may be not given."""
    return check_option("reactive.listen", name, options.get(name))


async def _run(
    at: str, options: dict[str, Any], publishing: Publishing, timeout: float, *, listens: bool
) -> int:
    """Publishes until all streams have ended, or until a signal; returns the exit code."""
    asked = _signals()
    serving = (
        _listen(at, options, publishing) if listens else _connect(at, options, publishing, timeout)
    )
    work = asyncio.create_task(serving)
    stop = asyncio.create_task(asked.get())
    await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        stop.cancel()
        work.result()
        return FAILED if publishing.has_failed else 0
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    if listens and publishing.streams is None:
        return 0
    number = stop.result()
    say(f"stopped by {signal.Signals(number).name}")
    return 128 + number


async def _listen(at: str, options: dict[str, Any], publishing: Publishing) -> None:
    async with reactive.listen(at, **options) as listener:
        publishing.output.say("listening", urls=[_url(listener.url, publishing.name)])
        await publishing.listen(listener)


async def _connect(
    at: str, options: dict[str, Any], publishing: Publishing, timeout: float
) -> None:
    until = time.monotonic() + timeout
    try:
        connection = await reactive.connect(at, **options, connect_timeout=timeout)
    except TransportError as error:
        if time.monotonic() >= until:
            raise LinkTimeout(str(error)) from None
        raise _Unreached(str(error)) from None
    await publishing.serve(connection, at.partition("?")[0])


def _url(place: str, name: str) -> str:
    """Returns the URL of a publisher at a place."""
    escaped = quote(name, safe="/-_.~")
    return f"{place}?publisher={escaped}" if "+unix://" in place else f"{place}/{escaped}"


def _signals() -> "asyncio.Queue[int]":
    """Returns a queue that gets the first signal; the second one ends the process."""
    asked: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def handle(came: int) -> None:
        asked.put_nowait(came)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle, number)
    return asked


def _fail(error: AcklineError, options: dict[str, Any]) -> NoReturn:
    """Ends with the error of the command line, of the connection or of the peer."""
    match error:
        case UsageError():
            fail(as_written(error, options), USAGE)
        case _Unreached():
            fail(error, UNREACHED)
        case LinkTimeout():
            fail(error, LATE)
        case ProtocolError():
            fail(with_dashes(error, options) + place(error.code, error.offset))
        case _:
            fail(with_dashes(error, options))


class _Unreached(AcklineError):  # noqa: N818 (an outcome)
    """No peer could be reached."""
