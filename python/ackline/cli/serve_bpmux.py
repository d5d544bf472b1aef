"""`ackline serve --echo`: a server of bpmux for tests of clients."""

import asyncio
import sys
from typing import Any, NoReturn

from ackline.aio.bpmux import Listener, listen
from ackline.cli.echo import EchoServer
from ackline.cli.files import allow_files
from ackline.cli.options import check_option, options_of
from ackline.cli.output import Output
from ackline.cli.until_signal import signals
from ackline.cli.values import FAILED, UNACKED, USAGE, as_written, fail
from ackline.exceptions import AcklineError, UsageError

__all__ = ["OPTIONS", "serve_bpmux"]

OPTIONS = options_of("bpmux.listen", but=("credit", "parts"))
"""The options of the command; an echo sets the others itself."""
_OF_TLS = ("ca", "crl", "cert", "key", "client_auth", "identity", "tokens_file")
_TICK = 1.0
"""Seconds between `stats` lines."""


def serve_bpmux(
    urls: list[str], options: dict[str, Any], output: Output, patience: float
) -> NoReturn:
    """Sends every message back, until SIGINT or SIGTERM; ends the process.

    Args:
        urls: Where to listen.
        options: The options of the command line.
        output: The output of events.
        patience: Seconds that a stop waits for the connections to end.
    """
    try:
        memory = check_option("bpmux.listen", "memory", options.get("memory"))
        connections = check_option(
            "bpmux.listen", "max_connections", options.get("max_connections")
        )
    except UsageError as error:
        fail(as_written(error), USAGE)
    allow_files(connections)
    try:
        code = asyncio.run(_run(urls, options, output, (memory, patience)))
    finally:
        output.end()
    sys.exit(code)


async def _run(
    urls: list[str], options: dict[str, Any], output: Output, limits: tuple[int, float]
) -> int:
    memory, patience = limits
    listeners = _listening(urls, options)
    asked = signals()
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
