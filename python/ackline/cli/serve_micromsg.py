"""`ackline serve micromsg://…`: a broker of topics and queues."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ackline.aio import micromsg
from ackline.cli.files import allow_files
from ackline.cli.notices import tell_elsewhere
from ackline.cli.options import check_option, options_of
from ackline.cli.output import Output, TextOutput
from ackline.cli.until_signal import signals
from ackline.cli.values import FAILED, UNACKED, USAGE, as_written, fail
from ackline.exceptions import AcklineError, LinkTimeout, UsageError

__all__ = ["OPTIONS", "Keeping", "serve_micromsg"]

_TABLE = "micromsg.serve"
_NOT_OPTIONS = ("ack_policy", "ack_timer", "negotiation", "queues", "server_name", "token_file")
OPTIONS = options_of(_TABLE, but=_NOT_OPTIONS)
"""The options of the command; the broker sets others itself."""
_OF_SPOOL = {option.name for option in options_of("receive") if option.sections == ("Spool",)}
_TICK = 1.0
"""Seconds between `stats` lines."""
_LOOK = 0.1
"""Seconds between looks for refused connections."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """The queues of a broker.

    Attributes:
        spool: The directory that keeps their messages; None keeps them in memory.
        queues: Names of queues, beside those that begin with `queue/`.
    """

    spool: str | None
    queues: Sequence[str]


def serve_micromsg(
    urls: list[str], options: dict[str, Any], output: Output, patience: float, keeping: Keeping
) -> NoReturn:
    """Serves topics and queues, until SIGINT or SIGTERM; ends the process.

    Args:
        urls: Where to listen.
        options: The options of the command line.
        output: The output of events.
        patience: Seconds that a stop waits for acknowledgements and for the connections to end.
        keeping: The queues.
    """
    if len(urls) > 1:
        fail("a broker has one URL: its topics and queues are there alone", USAGE)
    if keeping.spool == "":  # as a path "" is the current directory
        fail("--spool is empty: it takes a directory", USAGE)
    if keeping.spool is None and (named := sorted(options.keys() & _OF_SPOOL)):
        fail(f"--{named[0].replace('_', '-')} needs --spool DIR", USAGE)
    try:
        allow_files(check_option(_TABLE, "max_connections", options.get("max_connections")))
        code = asyncio.run(_run(urls[0], options, output, patience, keeping))
    except UsageError as error:
        if error.option == "queues":
            fail(f"--queue{str(error).removeprefix('queues')}", USAGE)
        fail(as_written(error, options), USAGE)
    except AcklineError as error:
        fail(error, FAILED)
    finally:
        output.end()
    sys.exit(code)


async def _run(
    url: str, options: dict[str, Any], output: Output, patience: float, keeping: Keeping
) -> int:
    spool = None if keeping.spool is None else Path(keeping.spool)
    broker = await micromsg.serve(url, spool=spool, queues=keeping.queues, **options)
    if isinstance(output, TextOutput):
        tell_elsewhere(("connection refused ",))
    asked = signals()
    output.say("listening", urls=[broker.url])
    ticking = asyncio.create_task(_tick(broker, output))
    telling = asyncio.create_task(_tell(broker, output))
    await asked.get()
    ticking.cancel()
    telling.cancel()
    second = asyncio.create_task(asked.get())
    ending = asyncio.create_task(broker.close(timeout=patience))
    await asyncio.wait({ending, second}, return_when=asyncio.FIRST_COMPLETED)
    _refusals(broker, output)
    cut = await _cut(broker, ending)
    output.say("stats", **broker.stats())
    output.say("stopped", cut=cut)
    second.cancel()
    if cut:
        sys.stderr.write(f"ackline: {cut} connections had not ended and were cut\n")
    return UNACKED if cut else 0


async def _cut(broker: micromsg.Broker, ending: "asyncio.Task[None]") -> int:
    """Ends the remaining connections at once; returns how many."""
    connections = int(broker.stats()["connections"])
    if ending.done():
        try:
            ending.result()
        except LinkTimeout:
            return max(connections, 1)
        return 0
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    broker.abort()
    return connections


async def _tell(broker: micromsg.Broker, output: Output) -> None:
    while True:
        await asyncio.sleep(_LOOK)
        _refusals(broker, output)


def _refusals(broker: micromsg.Broker, output: Output) -> None:
    for refused in broker.refusals():
        output.say(**refused)


async def _tick(broker: micromsg.Broker, output: Output) -> None:
    while True:
        await asyncio.sleep(_TICK)
        output.say("stats", **broker.stats())
