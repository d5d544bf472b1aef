"""`ackline publish` as a publisher of Reactive Streams."""

import asyncio
import signal
import sys
import time
from collections.abc import Collection
from typing import Any, NoReturn
from urllib.parse import quote

from ackline._reactive_core import reactive_split
from ackline.aio import reactive
from ackline.cli.elements import described
from ackline.cli.files import allow_files
from ackline.cli.options import check_option, options_of
from ackline.cli.publish_sources import FORMATS, PublishArguments, Source
from ackline.cli.publishing import Publishing
from ackline.cli.reaching import Unreached, reaching
from ackline.cli.terminal import say
from ackline.cli.until_signal import until_signal
from ackline.cli.values import (
    FAILED,
    LATE,
    LEAST,
    UNREACHED,
    USAGE,
    as_written,
    check_word,
    fail,
    option_of,
    place,
    with_dashes,
)
from ackline.exceptions import AcklineError, LinkTimeout, ProtocolError, UsageError

__all__ = ["CONNECT", "LISTEN", "publish_reactive"]

_NOT_OPTIONS = (
    "connect_timeout",
    "max_unfinished_bytes",
    "max_unfinished_elements",
    "memory",
    "parts",
)
"""Options that the command sets itself, or that do nothing for a publisher."""
LISTEN = options_of("reactive.listen", but=_NOT_OPTIONS)
CONNECT = options_of("reactive.connect", but=_NOT_OPTIONS)


def publish_reactive(
    arguments: PublishArguments, *, listens: bool, streams: int | None, element: str | None
) -> NoReturn:
    """Publishes to one subscriber, or to those that connect; ends the process.

    Args:
        arguments: The arguments that every protocol has.
        listens: Whether subscribers connect.
        streams: Number of streams after which it ends.
        element: The type of elements of a fixed size.
    """
    options = arguments.options
    _check_options(options, listens=listens)
    shape = described(element)
    check_word("--format", arguments.form, FORMATS)
    if shape is not None and arguments.form != "lines":
        fail(f"--element reads a binary file: leave --format {arguments.form} out", USAGE)
    try:
        at, name = reactive_split(arguments.url)
        limit = _number("max_element_bytes", options)
        if listens:
            allow_files(_number("max_connections", options))
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    source = Source(arguments.file, arguments.form, shape, (limit, "--max-element-bytes"))
    if source.is_standard_input and (streams or 1) > 1:
        fail("--streams needs a file: standard input can be read once", USAGE)
    if streams is None and (source.is_standard_input or not listens):
        streams = 1
    output = arguments.output()
    patience = max(arguments.timeout, LEAST)
    names = [option.name for option in (LISTEN if listens else CONNECT)]
    publishing = Publishing(name, source, streams, output, patience, names)
    serving = (
        _listen(at, options, publishing) if listens else _connect(at, options, publishing, patience)
    )
    try:
        stopped = asyncio.run(until_signal(serving))
    except AcklineError as error:
        output.end()
        _fail(error, options, names)
    output.end()
    if stopped is None:
        sys.exit(FAILED if publishing.has_failed else 0)
    if listens and publishing.streams is None:
        sys.exit(0)
    say(f"stopped by {signal.Signals(stopped).name}")
    sys.exit(128 + stopped)


def _check_options(options: dict[str, Any], *, listens: bool) -> None:
    """Refuses options of the other direction."""
    own = {option.name for option in (LISTEN if listens else CONNECT)}
    for name in options:
        if name not in own:
            why = "is for a command without --listen" if listens else "needs --listen"
            fail(f"{option_of(name)} {why}", USAGE)


def _number(name: str, options: dict[str, Any]) -> int:
    """Returns the number of an option of a listener, which may be not given."""
    return check_option("reactive.listen", name, options.get(name))


async def _listen(at: str, options: dict[str, Any], publishing: Publishing) -> None:
    async with reactive.listen(at, **options) as listener:
        publishing.output.say("listening", urls=[_url(listener.url, publishing.name)])
        await publishing.listen(listener)


async def _connect(
    at: str, options: dict[str, Any], publishing: Publishing, timeout: float
) -> None:
    with reaching(time.monotonic() + timeout):
        connection = await reactive.connect(at, **options, connect_timeout=timeout)
    await publishing.serve(connection, at.partition("?")[0])


def _url(place: str, name: str) -> str:
    """Returns the URL of a publisher at a place."""
    escaped = quote(name, safe="/-_.~")
    return f"{place}?publisher={escaped}" if "+unix://" in place else f"{place}/{escaped}"


def _fail(error: AcklineError, options: dict[str, Any], names: Collection[str]) -> NoReturn:
    """Ends with the error of the command line, of the connection or of the peer."""
    match error:
        case UsageError():
            fail(as_written(error, options), USAGE)
        case Unreached():
            fail(error, UNREACHED)
        case LinkTimeout():
            fail(error, LATE)
        case ProtocolError():
            fail(with_dashes(error, names) + place(error.code, error.offset))
        case _:
            fail(with_dashes(error, names))
