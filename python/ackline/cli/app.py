"""The commands and their modules."""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from ackline import __version__
from ackline.cli import call, decode, publish, receive, schema, send, serve, spool, subscribe

app = typer.Typer(
    name="ackline",
    help="Lossless message links: receive, keep durably, then acknowledge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:  # noqa: FBT001 (typer hands a flag over like this)
    if wanted:
        typer.echo(f"ackline {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: FBT002 (a flag)
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print name and version."),
    ] = False,
) -> None:
    """Lossless message links: receive, keep durably, then acknowledge."""
    del version  # its callback has printed the version


def _add(name: str, command: Callable[..., None]) -> None:
    """Adds a command; the width of the terminal, and not the docstring, breaks its lines."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(text.split()) for text in paragraphs))(command)


_add("receive", receive.receive)
_add("send", send.send)
_add("call", call.call)
_add("serve", serve.serve)
_add("publish", publish.publish)
_add("subscribe", subscribe.subscribe)
_add("decode", decode.decode)
app.add_typer(spool.app, name="spool")
app.add_typer(schema.app, name="schema")
