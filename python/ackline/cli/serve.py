"""`ackline serve`: a server of bpmux for tests of clients."""

import asyncio
import signal
import sys
from typing import Annotated, Any

import typer

from ackline.aio.bpmux import Listener, listen
from ackline.cli.echo import EchoServer
from ackline.cli.files import allow_files
from ackline.cli.options import check_option, options_of, with_options
from ackline.cli.output import JsonOutput, Output, TextOutput
from ackline.cli.values import FAILED, UNACKED, USAGE, as_written, fail, milliseconds, option_of
from ackline.exceptions import AcklineError, UsageError

__all__ = ["serve"]

_OF_TLS = ("ca", "crl", "cert", "key", "client_auth", "identity", "tokens_file")
_NOT_SERVED = ("credit", "parts")
"""Options that an echo sets itself."""
_TICK = 1.0
"""Seconds between `stats` lines."""


def serve(
    urls: Annotated[
        list[str],
        typer.Argument(
            help="Where to listen: bpmux://127.0.0.1:5200, bpmux+tls://…, bpmux+unix:///path; port "
            "0 is allowed."
        ),
    ],
    echo: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option(
            "--echo",
            help="Requests are answered with their payload; messages of duplexes and of the "
            "top-level come back; sinks are read and forgotten; a stream gets the payload that it "
            "was opened with once, and is closed.",
        ),
    ] = False,
    drain_timeout: Annotated[
        str, typer.Option(help="Time that a stop waits for the connections to end.")
    ] = "5s",
    as_json: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--json", help="JSON lines on standard output.")
    ] = False,
    **options: str | bool | None,
) -> None:
    """Serves bpmux, for tests of clients. It runs until SIGINT or SIGTERM.

    Ends with 0 when all connections have ended in good order; with 4, and their number, if some are
    open after --drain-timeout or at a second signal; 2 for a wrong command line, 1 when it could
    not start or no socket listens any more.
    """
    if not echo:
        fail("choose a service: --echo sends every message back", USAGE)
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        memory = check_option("bpmux.listen", "memory", given.get("memory"))
        connections = check_option("bpmux.listen", "max_connections", given.get("max_connections"))
    except UsageError as error:
        fail(as_written(error), USAGE)
    patience = milliseconds(drain_timeout, option_of("drain_timeout")) / 1000
    allow_files(connections)
    output: Output = JsonOutput() if as_json else TextOutput()
    try:
        code = asyncio.run(_run(urls, given, output, (memory, patience)))
    finally:
        output.end()
    sys.exit(code)


with_options(serve, options_of("bpmux.listen"), but=_NOT_SERVED)


async def _run(
    urls: list[str], options: dict[str, Any], output: Output, limits: tuple[int, float]
) -> int:
    memory, patience = limits
    listeners = _listening(urls, options)
    asked = _signals()
    output.say("listening", urls=[listener.url for listener in listeners])
    server = EchoServer(listeners, output, memory)
    accepting = asyncio.create_task(server.accept())
    ticking = asyncio.create_task(_tick(server, output))
    first = asyncio.create_task(asked.get())
    await asyncio.wait({accepting, first}, return_when=asyncio.FIRST_COMPLETED)
    code = 0 if first.done() else _told(accepting, output)
    second = asyncio.create_task(asked.get())
    ending = asyncio.create_task(server.stop())
    await asyncio.wait({ending, second}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    cut = server.abort()
    ticking.cancel()
    server.look()
    output.say("stats", **server.stats())
    output.say("stopped", cut=cut)
    if cut:
        sys.stderr.write(f"ackline: {cut} connections had not ended and were cut\n")
        code = code or UNACKED
    for task in (first, second, ending, accepting):
        task.cancel()
    await asyncio.gather(first, second, ending, accepting, return_exceptions=True)
    return code


def _listening(urls: list[str], options: dict[str, Any]) -> list[Listener]:
    is_secure = ["+tls://" in url for url in urls]
    plain = {name: value for name, value in options.items() if name not in _OF_TLS}
    try:
        # If no URL uses them, they are refused.
        return [
            listen(url, **(options if secure or not any(is_secure) else plain))
            for url, secure in zip(urls, is_secure, strict=True)
        ]
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    except AcklineError as error:
        fail(error, FAILED)


def _signals() -> "asyncio.Queue[None]":
    """Returns a queue with one item for each SIGINT and SIGTERM."""
    asked: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.put_nowait, None)
    return asked


def _told(accepting: "asyncio.Task[None]", output: Output) -> int:
    """Reports why nobody can connect any more."""
    error = accepting.exception()
    causes = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    output.say("failed", code="bpmux.listen", message="; ".join(map(str, causes)))
    return FAILED


async def _tick(server: EchoServer, output: Output) -> None:
    while True:
        await asyncio.sleep(_TICK)
        server.look()
        output.say("stats", **server.stats())
