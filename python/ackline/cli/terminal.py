"""What may go to a terminal: nothing that it would act on."""

import sys

from ackline._terminal import escaped, lines_escaped

__all__ = ["escaped", "lines_escaped", "print_line", "print_text", "say", "text_of"]


def text_of(payload: bytes) -> str:
    r"""Why something was ended, as a peer's payload has it; bytes that are no UTF-8 as `\xff`."""
    return payload.decode(errors="backslashreplace") if payload else "it says nothing of why"


def say(message: object) -> None:
    """Says something in one line on standard error."""
    sys.stderr.write(f"ackline: {escaped(str(message))}\n")
    sys.stderr.flush()


def print_line(text: str) -> None:
    """Prints a line for people, or a line of JSON: with everything escaped, also into a pipe."""
    sys.stdout.write(f"{escaped(text)}\n")


def print_text(payload: bytes) -> None:
    r"""Prints data: as it is into a pipe or a file, for a terminal as text with escapes.

    There bytes that are no UTF-8 are `\xff`; line feeds and tabs stay.
    """
    if sys.stdout.isatty():
        sys.stdout.write(lines_escaped(payload.decode(errors="backslashreplace")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(payload)
