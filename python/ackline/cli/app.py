"""The commands and where they are."""

import typer

from ackline.cli import receive, send, spool

app = typer.Typer(
    name="ackline",
    help="Lossless message links: receive, keep durably, then acknowledge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("receive")(receive.receive)
app.command("send")(send.send)
app.add_typer(spool.app, name="spool")
