"""Escapes for foreign text on a terminal, so that the terminal acts on nothing in it."""

import json
import unicodedata

__all__ = ["escaped", "lines_escaped"]


def escaped(text: str) -> str:
    r"""Returns a text with everything but printable characters escaped as in JSON, line ends too.

    These are C0, DEL and C1, and marks that are invisible or change the direction of writing (all
    of the Unicode categories Cc, Cf, Co, Cs, Cn, Zl and Zp). So a peer's text can neither move the
    cursor nor change the direction of writing, nor begin a line. Spaces of other widths (Zs) stay.
    """
    if text.isprintable():
        return text
    return "".join(one if _is_shown(one) else json.dumps(one)[1:-1] for one in text)


def lines_escaped(text: str) -> str:
    """Returns a text of several lines escaped in the same way; its line feeds and tabs stay."""
    if text.isprintable():
        return text
    stays = "\n\t"
    return "".join(one if one in stays or _is_shown(one) else escaped(one) for one in text)


def _is_shown(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == "Zs"
