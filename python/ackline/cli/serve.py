"""`ackline serve`: an echo of bpmux, or a broker of MicroMsg2."""

from typing import Annotated, Any, NoReturn

import typer

from ackline.cli.needs import PROTOCOLS, check_protocol, of_command_line, one_of
from ackline.cli.options import together, with_options
from ackline.cli.output import JsonOutput, Output, TextOutput
from ackline.cli.serve_bpmux import OPTIONS as OF_BPMUX
from ackline.cli.serve_bpmux import serve_bpmux
from ackline.cli.serve_micromsg import OPTIONS as OF_MICROMSG
from ackline.cli.serve_micromsg import Keeping, serve_micromsg
from ackline.cli.values import USAGE, fail, milliseconds, option_of

__all__ = ["serve"]

_SCHEMES = ("bpmux", "micromsg")
_OTHERS = {"lumberjack": "receive", "relink": "receive", "reactive": "publish --listen"}
"""The command for other protocols."""
_BPMUX, _MICROMSG = (PROTOCOLS[scheme] for scheme in _SCHEMES)
_OPTIONS = together({_BPMUX: OF_BPMUX, _MICROMSG: OF_MICROMSG})
_OF = {"echo": ("bpmux",), "spool": ("micromsg",), "queue": ("micromsg",)} | {
    option.name: tuple(scheme for scheme in _SCHEMES if PROTOCOLS[scheme] in option.sections)
    for option in _OPTIONS
}
"""The protocols of each option that not every protocol has."""


_Urls = Annotated[
    list[str],
    typer.Argument(
        help="Where to listen: bpmux://127.0.0.1:5200 or micromsg://127.0.0.1:8334, also +tls, or "
        "bpmux+unix:///path or micromsg+unix:///path; port 0 is allowed. All of one protocol."
    ),
]
_Echo = Annotated[
    bool,
    typer.Option(
        "--echo",
        help="Requests are answered with their payload; messages of duplexes and of the "
        "top-level come back; sinks are read and forgotten; a stream gets the payload that it "
        "was opened with once, and is closed.",
        rich_help_panel=_BPMUX,
    ),
]
_Spool = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Directory that keeps the messages of queues: each is acknowledged after its fsync, "
        "and goes to a receiver also after a restart.",
        show_default="in memory: a restart loses them",
        rich_help_panel=_MICROMSG,
    ),
]
_Queue = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A destination that is a queue, beside those that begin with queue/; NAME* is every "
        "one that begins with NAME. All other destinations are topics. May be repeated.",
        rich_help_panel=_MICROMSG,
    ),
]
_DrainTimeout = Annotated[
    str, typer.Option(help="Time that a stop waits for the connections to end.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="JSON lines on standard output.")]


def serve(
    context: typer.Context,
    urls: _Urls,
    echo: _Echo = False,  # noqa: FBT002 (a flag)
    spool: _Spool = None,
    queue: _Queue = None,
    drain_timeout: _DrainTimeout = "5s",
    as_json: _AsJson = False,  # noqa: FBT002 (a flag)
    **given: str | bool | None,
) -> NoReturn:
    """Serves clients, until SIGINT or SIGTERM.

    bpmux: the server is for tests of clients; --echo sends every message back.

    MicroMsg2: the server is a broker. Topics are live only: a message goes to the connections that
    subscribe to its topic now and whose filters it matches; with none it is dropped. A queue keeps
    each message until a receiver has acknowledged it: it goes to one receiver at a time, and to
    another one when that connection ends before.

    Ends with 0 when all connections have ended in good order; with 4, and their number, if some are
    open after --drain-timeout or at a second signal; 2 for a wrong command line, 1 when it could
    not start or no socket listens any more.
    """
    schemes = [one_of(url, _SCHEMES, _OTHERS) for url in urls]
    scheme = schemes[0]
    if len(set(schemes)) > 1:
        fail("the URLs are of several protocols: serve each by a command of its own", USAGE)
    check_protocol(of_command_line(context), scheme, _OF)
    if scheme == "bpmux" and not echo:
        fail("choose a service: --echo sends every message back", USAGE)
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    patience = milliseconds(drain_timeout, option_of("drain_timeout")) / 1000
    output: Output = JsonOutput() if as_json else TextOutput()
    if scheme == "bpmux":
        serve_bpmux(urls, options, output, patience)
    serve_micromsg(urls, options, output, patience, Keeping(spool, queue or []))


with_options(serve, _OPTIONS)
