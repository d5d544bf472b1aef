"""Pictures of boxes and texts, as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

COLORS: Final = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377")
"""A palette that readers with impaired colour vision can tell apart (Paul Tol, "bright")."""


def page(width: float, height: float, drawn: Iterable[str]) -> str:
    """Return a picture of boxes and texts on white; lengths are in pixels."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(drawn)}</svg>"
    )


def box(left: float, top: float, size: tuple[float, float], color: str, title: str) -> str:
    """Return a box; `size` is its width and height, and `title` its text under the pointer."""
    width, height = size
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{color}"><title>{escape(title)}</title></rect>'
    )


def text(left: float, top: float, words: str) -> str:
    """Return a text that begins at `left` and stands on `top`."""
    return f'<text x="{left:.1f}" y="{top:.1f}" fill="#222222">{escape(words)}</text>'
