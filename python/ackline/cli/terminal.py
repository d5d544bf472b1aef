"""Text for a terminal, without characters that the terminal would act on."""

import sys

from ackline._terminal import escaped, lines_escaped

__all__ = ["escaped", "lines_escaped", "print_line", "print_text", "say", "text_of"]


def text_of(payload: bytes) -> str:
    r"""Returns the reason in a peer's payload; bytes that are no UTF-8 become `\xff`."""
    return payload.decode(errors="backslashreplace") if payload else "it gives no reason"


def say(message: object) -> None:
    """Says something in one line on standard error."""
    sys.stderr.write(f"ackline: {escaped(str(message))}\n")
    sys.stderr.flush()


def print_line(text: str) -> None:
    """Prints a line for people, or a line of JSON, with everything escaped, also into a pipe."""
    sys.stdout.write(f"{escaped(text)}\n")


def print_text(payload: bytes) -> None:
    r"""Prints data: unchanged into a pipe or a file, as text with escapes on a terminal.

    On a terminal, bytes that are no UTF-8 become `\xff`; line feeds and tabs stay.
    """
    if sys.stdout.isatty():
        sys.stdout.write(lines_escaped(payload.decode(errors="backslashreplace")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(payload)
