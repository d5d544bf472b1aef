"""The command line: `ackline receive`, `send`, `publish`, `subscribe` and the other commands.

It needs the extra ``cli``.
"""

import logging
import os
import sys

from ackline.cli.notices import Notices

__all__ = ["main"]


def main() -> None:
    """Runs the command line with the process's arguments."""
    _log_to_stderr(os.environ.get("ACKLINE_LOG", "WARNING"))
    try:
        from ackline.cli.app import app
        from ackline.cli.standard import finish, guard
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.stderr.write("the command line needs its extra: pip install 'ackline[cli]'\n")
        sys.exit(2)
    guard()
    try:
        app()
    finally:
        finish()


def _log_to_stderr(level: str) -> None:
    """Shows the records of the logger `ackline`; the essential ones are on standard output too."""
    logger = logging.getLogger("ackline")
    try:
        logger.setLevel(level.upper())
    except ValueError:
        sys.stderr.write(f"ackline: ACKLINE_LOG is {level!r}: DEBUG, INFO, WARNING or ERROR\n")
        sys.exit(2)
    logger.addHandler(Notices())
