"""The commands and their modules."""

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


app.command("receive")(receive.receive)
app.command("send")(send.send)
app.command("call")(call.call)
app.command("serve")(serve.serve)
app.command("publish")(publish.publish)
app.command("subscribe")(subscribe.subscribe)
app.command("decode")(decode.decode)
app.add_typer(spool.app, name="spool")
app.add_typer(schema.app, name="schema")
