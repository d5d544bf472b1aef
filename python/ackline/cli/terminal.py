"""What may go to a terminal: nothing that it would act on."""

import json
import sys

__all__ = ["escaped", "say", "text_of"]


def escaped(text: str) -> str:
    """A text with the escapes of JSON for what is no printable character, line ends too.

    So a peer's word can neither move the cursor nor turn the writing round, nor begin a line.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def text_of(payload: bytes) -> str:
    r"""Why something was ended, as a peer's payload has it; bytes that are no UTF-8 as `\xff`."""
    return payload.decode(errors="backslashreplace") if payload else "it says nothing of why"


def say(message: object) -> None:
    """Says something in one line on standard error."""
    sys.stderr.write(f"ackline: {escaped(str(message))}\n")
    sys.stderr.flush()
