"""Text that comes from elsewhere, as a terminal may show it: nothing in it that it would act on."""

import json
import unicodedata

__all__ = ["escaped", "lines_escaped"]


def escaped(text: str) -> str:
    r"""A text with the escapes of JSON for everything but printable characters, line ends too.

    Escaped are C0, DEL and C1, marks that turn the writing round or are not seen (all of the
    Unicode categories Cc, Cf, Co, Cs, Cn, Zl and Zp). So a peer's word can neither move the cursor
    nor turn the writing round, nor begin a line. Spaces of other widths (Zs) stay.
    """
    if text.isprintable():
        return text
    return "".join(one if _is_shown(one) else json.dumps(one)[1:-1] for one in text)


def lines_escaped(text: str) -> str:
    """The same for a text of several lines: line feeds and tabs stay."""
    if text.isprintable():
        return text
    stays = "\n\t"
    return "".join(one if one in stays or _is_shown(one) else escaped(one) for one in text)


def _is_shown(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == "Zs"
