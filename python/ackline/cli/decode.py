"""`ackline decode`: the frames of a capture."""

import inspect
import json
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from unicodedata import category

import typer

from ackline import _core
from ackline.cli.show import Json
from ackline.cli.standard import standard_input
from ackline.cli.terminal import escaped, say
from ackline.cli.values import FAILED, USAGE, as_written, check_word, fail, size, with_dashes
from ackline.exceptions import ProtocolError, UsageError

__all__ = ["decode"]

_CHUNK = 1 << 16
_WIDTH = 8
"""Bytes on one line of annotated hex: the alignment of all fields of Relink."""
_ROWS = 16
"""Lines of annotated hex for one field; the rest is counted."""
_IDS = {"channel_ids"}
"""Members that are always shown as hex, in the form that the option naming one takes."""
_SHOWN = 48
"""Bytes of one value in the table."""
_NO_TEXT = ("Cc", "Cn", "Co", "Cs")
"""Categories that no text has: control characters, and code points that are no characters."""
_CONTROLS = "\t\n\r\x1b"
"""Control characters that a text may have all the same."""
_UNITS = ("handshake", "frame")
"""The parts of a connection of MicroMsg2 that a capture may have alone."""
_LISTED = 8
"""Values of one list in the table."""
_Frame = tuple[int, str, bytes, dict[str, Any], list[tuple[int, str]]]


def decode(  # noqa: PLR0913, PLR0917 (an argument for each option)
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The capture; - reads stdin.")],
    protocol: Annotated[str, typer.Option(help="bpmux, lumberjack, micromsg, reactive or relink.")],
    sender: Annotated[
        str | None,
        typer.Option(
            help="The bytes' sender: writer or reader, connector or listener, client or server. "
            "[default: the first]"
        ),
    ] = None,
    handshake: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--handshake", help="Relink: the capture begins with the handshake.")
    ] = False,
    connector_channel_id_size: Annotated[
        int | None,
        typer.Option(min=0, max=255, help="Relink: bytes of an id of the connector's channels."),
    ] = None,
    listener_channel_id_size: Annotated[
        int | None,
        typer.Option(min=0, max=255, help="Relink: bytes of an id of the listener's channels."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_UNITS),
            help="MicroMsg2: the capture has these alone, such as the frames of a connection whose "
            "handshakes are missing. [default: a sender's handshakes, then its frames]",
        ),
    ] = None,
    max_frame_bytes: Annotated[
        str, typer.Option(help="Most bytes of a frame's payload, and of an inflated envelope.")
    ] = "1GiB",
    from_hex: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--hex", help="The capture is hex text; blanks and 0x are ignored.")
    ] = False,
    as_json: Json = False,  # noqa: FBT002 (a flag)
    annotate: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--annotate", help="Hex, with the meaning of each byte.")
    ] = False,
) -> None:
    """Prints the frames of one side of a connection: as a table, JSON lines or annotated hex."""
    if as_json and annotate:
        fail("--json and --annotate are two ways to print: give one", USAGE)
    given = {
        "handshake": handshake or None,
        "connector_channel_id_size": connector_channel_id_size,
        "listener_channel_id_size": listener_channel_id_size,
        "unit": unit,
    }
    _check_unit(unit, protocol)
    options: dict[str, int | str] = {k: value for k, value in given.items() if value is not None}
    options["max_frame_bytes"] = size(max_frame_bytes, "--max-frame-bytes")
    try:
        inspector = _core.Inspector(protocol, sender, options)
    except UsageError as error:
        fail(_refused(error, protocol, options), USAGE)
    printed = _Json() if as_json else _Annotated() if annotate else _Table()
    if not _run(inspector, _content(file, from_hex=from_hex), printed):
        sys.exit(FAILED)


def _check_unit(unit: str | None, protocol: str) -> None:
    if unit is not None:
        if protocol != "micromsg":
            fail("--unit is an option of MicroMsg2", USAGE)
        check_word("--unit", unit, _UNITS)


def _refused(error: UsageError, protocol: str, options: dict[str, int | str]) -> str:
    """Returns the error of the command line, with the names of its options."""
    if error.code != "unknown_option":
        return as_written(error, inspect.signature(decode).parameters)
    unknown = next(name for name in options if f'"{name}"' in str(error))
    return f"--{unknown.replace('_', '-')} is no option of {protocol}"


def _run(inspector: _core.Inspector, content: Iterator[bytes], printed: "_Json | _Table") -> bool:
    """Prints all frames; returns whether they were whole and sound to the end."""
    frames = 0
    try:
        for frame in _frames(inspector, content):
            printed.frame(frame)
            frames += 1
    except ProtocolError as error:
        printed.failed(error)
        return False
    printed.end(frames, inspector.offset, inspector.pending)
    return inspector.pending == 0


def _frames(inspector: _core.Inspector, content: Iterator[bytes]) -> Iterator[_Frame]:
    """Yields all frames; a whole text is one, and comes at the end."""
    for chunk in content:
        inspector.feed(chunk)
        yield from iter(inspector.take, None)
    inspector.end()
    yield from iter(inspector.take, None)


def _content(file: str, *, from_hex: bool) -> Iterator[bytes]:
    """Yields the capture in chunks."""
    try:
        if file == "-":
            chunks = _chunks(standard_input())
            yield from _digits(chunks) if from_hex else chunks
            return
        with _opened(file) as stream:
            chunks = _chunks(stream)
            yield from _digits(chunks) if from_hex else chunks
    except OSError as error:
        fail(f"{file}: {error.strerror or error}", FAILED)


def _opened(file: str) -> BinaryIO:
    """Opens the capture; a file that cannot be opened is an error of the command line."""
    try:
        return Path(file).open("rb")
    except OSError as error:
        fail(f"{file}: {error.strerror or error}", USAGE)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _digits(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the bytes of hex text, line by line."""
    line: list[str] = []
    lines = 1
    for chunk in chunks:
        whole, newline, rest = chunk.decode("latin-1").rpartition("\n")
        if newline:
            yield _bytes("".join([*line, whole]), lines)
            lines += whole.count("\n") + 1
            line.clear()
        line.append(rest)
    yield _bytes("".join(line), lines)


def _bytes(text: str, first: int) -> bytes:
    """Returns the bytes of whole lines; `first` is the number of the first line."""
    try:
        return _of_hex(text)
    except ValueError:
        for number, line in enumerate(text.split("\n"), first):
            _check_line(line, number)
        raise


def _of_hex(text: str) -> bytes:
    words = text.replace(":", " ").replace(",", " ").split()
    return bytes.fromhex("".join(word.removeprefix("0x") for word in words))


def _check_line(line: str, number: int) -> None:
    """Ends the command if the line is no hex, and names the wrong part of the line."""
    try:
        _of_hex(line)
    except ValueError:
        wrong = re.search(r"(?!0x)[^\s:,0-9a-fA-F]", line.replace("0x", "  "))
        why = (
            f"{wrong[0]!r} in column {wrong.start() + 1} is no hex digit"
            if wrong
            else "it ends inside a byte: there are whole bytes on each line"
        )
        fail(f"--hex: line {number}: {why}", USAGE)


class _Json:
    """JSON lines."""

    def frame(self, frame: _Frame) -> None:
        self._line({"event": "frame", **_plain(frame)})

    def end(self, frames: int, size: int, pending: int) -> None:
        self._line({"event": "decoded", "frames": frames, "bytes": size, "pending": pending})

    def failed(self, error: ProtocolError) -> None:
        line = {"event": "failed", "code": error.code, "offset": error.offset}
        self._line(line | {"message": _text(error)})

    def _line(self, line: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")


def _text(error: ProtocolError) -> str:
    return with_dashes(error, ["max_frame_bytes"])


def _plain(frame: _Frame) -> dict[str, Any]:
    """Returns a frame in the form for JSON: bytes are hex."""
    offset, name, content, members, _ = frame
    head = {"offset": offset, "length": len(content), "type": name}
    return head | {name: _hex(value) for name, value in members.items()}


def _hex(value: Any) -> Any:  # noqa: ANN401 (any member)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return _plain(value)
    if isinstance(value, dict):
        return {name: _hex(one) for name, one in value.items()}
    return [_hex(one) for one in value] if isinstance(value, list) else value


class _Table:
    """A line for each frame, as they come."""

    def __init__(self) -> None:
        self._begun = False

    def frame(self, frame: _Frame, indent: str = "") -> None:
        if not self._begun:
            self._begun = True
            self._row("offset", "bytes", "frame", "content")
        offset, name, content, members, _ = frame
        frames = members.get("frames", [])
        shown = (
            f"{key}={_short(value, is_id=key in _IDS)}"
            for key, value in members.items()
            if key != "frames"
        )
        self._row(f"{indent}{offset}", str(len(content)), f"{indent}{name}", " ".join(shown))
        for inner in frames:
            self.frame(inner, indent + "  ")

    def end(self, frames: int, size: int, pending: int) -> None:
        rest = f"; bytes behind the last whole frame: {pending}" if pending else ""
        sys.stderr.write(f"{frames} frames, {size} bytes{rest}\n")

    def failed(self, error: ProtocolError) -> None:
        sys.stdout.flush()
        say(f"{error.code}: {_text(error)} (at byte {error.offset} of the capture)")

    def _row(self, offset: str, size: str, name: str, content: str) -> None:
        sys.stdout.write(f"{offset:<10} {size:>8}  {name:<24} {content}".rstrip() + "\n")


class _Annotated(_Table):
    """Hex, with the meaning of each byte."""

    def frame(self, frame: _Frame, indent: str = "") -> None:
        offset, name, content, members, spans = frame
        sys.stdout.write(f"{indent}{name}, {len(content)} bytes\n")
        at = 0
        for length, label in spans:
            self._span(offset + at, content[at : at + length], label, indent)
            at += length
        for inner in members.get("frames", []):
            self.frame(inner, indent + "    ")

    @staticmethod
    def _span(offset: int, content: bytes, label: str, indent: str) -> None:
        shown = content[: _ROWS * _WIDTH]
        for row in range(0, len(shown), _WIDTH):
            digits = shown[row : row + _WIDTH].hex(" ")
            line = f"{indent}  {offset + row:08x}  {digits:<{3 * _WIDTH}} {label}"
            sys.stdout.write(line.rstrip() + "\n")
            label = ""
        if more := len(content) - len(shown):
            sys.stdout.write(f"{indent}  {'':8}  … {more} more bytes\n")


def _as_text(value: bytes) -> str | None:
    """Returns the beginning of a text, escaped as in JSON; None if it is no text."""
    try:
        # A character may extend beyond the beginning.
        head = getincrementaldecoder("utf-8")().decode(value[:_SHOWN], final=len(value) <= _SHOWN)
    except UnicodeDecodeError:
        return None
    is_text = all(category(one) not in _NO_TEXT or one in _CONTROLS for one in head)
    return escaped(json.dumps(head, ensure_ascii=False)) if is_text else None


def _short(value: Any, *, is_id: bool) -> str:  # noqa: ANN401 (any member)
    """Returns a value that fits into a line; bytes from the peer reach a terminal only escaped."""
    if isinstance(value, bytes):
        more = f"…({len(value)} bytes)" if len(value) > _SHOWN else ""
        text = None if is_id else _as_text(value)
        return (value[:_SHOWN].hex() if text is None else text) + more
    if isinstance(value, list):
        more = f",…({len(value)})" if len(value) > _LISTED else ""
        return f"[{','.join(_short(one, is_id=is_id) for one in value[:_LISTED])}{more}]"
    if isinstance(value, dict):
        members = (f"{key}={_short(one, is_id=is_id)}" for key, one in value.items())
        return f"{{{' '.join(members)}}}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and not value.isidentifier():
        return escaped(json.dumps(value, ensure_ascii=False))
    return str(value)
