"""`ackline serve`: a server of bpmux to try clients against."""

import asyncio
import signal
import sys
from typing import Annotated, Any

import typer

from ackline.aio.bpmux import Listener, listen
from ackline.cli.echo import EchoServer
from ackline.cli.files import allow_files
from ackline.cli.output import JsonOutput, Output, TextOutput
from ackline.cli.values import (
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

__all__ = ["serve"]

_OF_TLS = ("ca", "crl", "cert", "key", "client_auth", "identity", "tokens_file")
_TICK = 1.0
"""Seconds between `stats` lines."""


def serve(  # noqa: PLR0913, PLR0917 (each is an option of the command)
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
        str,
        typer.Option(help="How long a stop waits for the ends of connections."),
    ] = "5s",
    max_connections: Annotated[int, typer.Option(help="Connections at once.", min=1)] = 10_000,
    allow: Annotated[
        str | None,
        typer.Option(
            help="Networks that may connect, such as 10.0.0.0/8,::1.", show_default="everybody"
        ),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Bytes of received payload of all connections that may be held.")
    ] = "256MiB",
    max_payload_bytes: Annotated[
        str, typer.Option(help="Bytes of one payload of a peer's.")
    ] = "16MiB",
    max_entities: Annotated[
        int,
        typer.Option(help="Sinks, streams and duplexes that a connection may have open.", min=1),
    ] = 65_536,
    max_requests: Annotated[
        int, typer.Option(help="Requests of a connection that may wait for their answer.", min=1)
    ] = 65_536,
    ping_after: Annotated[
        str, typer.Option(help="Silence after which a client is pinged; off.")
    ] = "11s",
    pong_timeout: Annotated[
        str, typer.Option(help="How long a ping waits before the connection ends; off.")
    ] = "7s",
    chunk_receive_timeout: Annotated[
        str, typer.Option(help="Silence inside a chunk after which the connection ends; off.")
    ] = "30s",
    ca: Annotated[
        str | None, typer.Option(help="For +tls: certificates that issue the clients'.")
    ] = None,
    crl: Annotated[
        str | None, typer.Option(help="For +tls: a PEM file of revocation lists, up to 1 MiB.")
    ] = None,
    cert: Annotated[str | None, typer.Option(help="For +tls: our own certificate.")] = None,
    key: Annotated[str | None, typer.Option(help="For +tls: its key.")] = None,
    client_auth: Annotated[
        str | None,
        typer.Option(
            help="For +tls: none, optional or required.", show_default="required with --ca"
        ),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            help="TLS: part of a certificate that a client is known by: subject (with its "
            "issuer), san or fingerprint.",
            show_default="subject",
        ),
    ] = None,
    tokens_file: Annotated[
        str | None,
        typer.Option(
            help="TLS: file with a name and a token in each line: only clients with one of "
            "these tokens are served, and are known by its name."
        ),
    ] = None,
    as_json: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--json", help="JSON lines on standard output.")
    ] = False,
) -> None:
    """Serves bpmux, for trying clients against. It runs until SIGINT or SIGTERM.

    Ends with 0 when all connections have ended in good order, with 4, and the number, when some had
    not within --drain-timeout or at a second signal; 2 for a wrong command line, 1 when it could
    not start or no socket listens any more.
    """
    if not echo:
        fail("choose what is served: --echo sends back what comes", USAGE)
    if client_auth not in {None, "none", "optional", "required"}:
        fail(f"--client-auth is none or optional or required, not {client_auth!r}", USAGE)
    if identity not in {None, "subject", "san", "fingerprint"}:
        fail(f"--identity is subject or san or fingerprint, not {identity!r}", USAGE)
    silences = {
        "ping_after": ping_after,
        "pong_timeout": pong_timeout,
        "chunk_receive_timeout": chunk_receive_timeout,
    }
    options: dict[str, Any] = {
        "max_connections": max_connections,
        "allow": allow,
        "memory": size(memory, "--memory"),
        "max_payload_bytes": size(max_payload_bytes, "--max-payload-bytes"),
        "max_entities": max_entities,
        "max_requests": max_requests,
        "ca": ca,
        "crl": crl,
        "cert": cert,
        "key": key,
        "client_auth": client_auth,
        "identity": identity,
        "tokens_file": tokens_file,
    }
    given = {name: value for name, value in options.items() if value is not None}
    for name, text in silences.items():
        given[name] = timer(text, option_of(name)) / 1000 or None
    patience = milliseconds(drain_timeout, option_of("drain_timeout")) / 1000
    allow_files(max_connections)
    output: Output = JsonOutput() if as_json else TextOutput()
    try:
        code = asyncio.run(_run(urls, given, output, patience))
    finally:
        output.end()
    sys.exit(code)


async def _run(urls: list[str], options: dict[str, Any], output: Output, patience: float) -> int:
    listeners = _listening(urls, options)
    asked = _signals()
    output.say("listening", urls=[listener.url for listener in listeners])
    server = EchoServer(listeners, output, options["memory"])
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
        # Where no URL has a use for them, they are refused.
        return [
            listen(url, **(options if secure or not any(is_secure) else plain))
            for url, secure in zip(urls, is_secure, strict=True)
        ]
    except UsageError as error:
        fail(as_written(str(error), serve), USAGE)
    except AcklineError as error:
        fail(error, FAILED)


def _signals() -> "asyncio.Queue[None]":
    """One item for each SIGINT and SIGTERM."""
    asked: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.put_nowait, None)
    return asked


def _told(accepting: "asyncio.Task[None]", output: Output) -> int:
    """Nobody can connect any more: says why."""
    error = accepting.exception()
    causes = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    output.say("failed", code="bpmux.listen", message="; ".join(map(str, causes)))
    return FAILED


async def _tick(server: EchoServer, output: Output) -> None:
    while True:
        await asyncio.sleep(_TICK)
        server.look()
        output.say("stats", **server.stats())
