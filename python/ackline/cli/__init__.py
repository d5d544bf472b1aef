"""The command line: `ackline receive`, `ackline send`, `ackline spool …` (extra ``cli``)."""

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line with the process's arguments."""
    try:
        from ackline.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.stderr.write("the command line needs its extra: pip install 'ackline[cli]'\n")
        sys.exit(2)
    app()
