"""The tables of options, compared with the arguments of Python's calls."""

from ackline import _values
from ackline.cli.options import Option


def assert_is_default(option: Option, value: object) -> None:
    """Asserts that an argument's default is that of its option."""
    text = option.default
    if value is None:
        assert text in {"", "off"} or "all but" in text, option.name
    elif isinstance(value, bool):
        assert text == str(value).lower(), option.name
    elif option.kind == "time":
        assert (_values.milliseconds(text) or 0) / 1000 == value, option.name
    elif option.kind in {"bytes", "count"}:
        assert _values.size(text) == value, option.name
    else:
        assert text == str(value), option.name
