"""The sources of publishers: everything that becomes elements."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol, cast

from ackline._payloads import Buffer
from ackline._reactive import PACKED_BYTES, UNBOUNDED, failed, packed, reason_of, view_of
from ackline._reactive_core import ReactiveElements, ReactiveNames
from ackline.exceptions import UsageError

__all__ = ["PublishersBase", "elements_of", "opened"]

_FILE_BYTES: Final = 64 << 10
"""Bytes of a file in one element."""
_BATCH: Final = 256
"""Elements of a sequence that are handed over at once."""


class _ArrowStream(Protocol):
    """Record batches, such as a `pyarrow.Table` or a `pyarrow.RecordBatchReader`."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches as a capsule of Arrow's C interface."""
        ...


Batches = Iterator[ReactiveElements]
"""Elements that are published one batch after the other."""


class PublishersBase:
    """Publishers by name, without their waits."""

    def __init__(self, publishers: Mapping[str, object] | None = None) -> None:
        self._names = ReactiveNames()
        for name, source in (publishers or {}).items():
            self.add(name, source)

    def add(self, name: str, source: object, *, element_size: int | None = None) -> None:
        """Adds a publisher.

        Args:
            name: Its name; ``sensors/*`` is every name with this beginning, and in other places
                ``*`` stands for any characters but a slash, ``?`` for one. The exact name goes
                before the longest beginning, and that before the first pattern.
            source: The elements, for each subscription from the beginning: an iterable of bytes, a
                NumPy array or another buffer of numbers, a `pathlib.Path` (the file's bytes, in
                elements of up to 64 KiB), an Arrow array (its values), Arrow batches (a table: each
                batch is an element, an Arrow IPC stream), or a function that takes the whole name
                and returns any of these. An exception of the function rejects the subscription with
                its text. An iterator can be read once: give a function that makes one.
            element_size: The bytes of every element, which are packed then; None is the size of a
                number for arrays, and any size else. With a size an iterable's items may be
                buffers of several elements.

        Raises:
            UsageError: ``publisher_exists``, or the source or the size cannot be one.
        """
        if isinstance(source, str):
            raise UsageError("a publisher's source is a str: give bytes, or a list with it in it")
        if element_size is not None and (
            not isinstance(cast("Any", element_size), int) or not 0 <= element_size <= UNBOUNDED
        ):
            raise UsageError(f"element_size is {element_size!r}; it is a number of bytes")
        self._names.add(name, (source, element_size))

    reason = staticmethod(reason_of)
    failed = staticmethod(failed)

    def find(self, name: str) -> tuple[int, object]:
        """Returns the element size and the elements for a subscription.

        Raises:
            Exception: The subscription is to be rejected with the text.
        """
        found = self._names.find(name)
        if found is None:
            raise UsageError(f"there is no publisher {name!r}")
        source, element_size = found
        if callable(source) and not _is_elements(source):
            source = source(name)
        if _is_elements(source) and hasattr(getattr(source, "type", None), "index_type"):
            # The values of a dictionary are what is published, not its indices.
            source = cast("Any", source).cast(cast("Any", source).type.value_type)
        return _sized(source, element_size), source


def _is_elements(source: object) -> bool:
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__")


def _width(source: object) -> int | None:
    """Returns the bytes of each value of an Arrow array of numbers without nulls."""
    if not _is_elements(source):
        return None
    try:
        bits = cast("Any", source).type.bit_width
    except (AttributeError, ValueError):
        # Record batches have no type, and strings no width.
        return None
    return bits // 8 if bits % 8 == 0 else None


def _sized(source: object, element_size: int | None) -> int:
    """Returns the size of every element of a source, or 0."""
    if element_size is not None:
        return element_size
    if (width := _width(source)) is not None:
        return width
    if isinstance(source, bytes | bytearray):
        raise UsageError(
            "a publisher's source is bytes: give element_size, or a list with the bytes in it"
        )
    view = None if _is_elements(source) else view_of(source)
    return 0 if view is None else view.itemsize


def _numbers(source: Any) -> memoryview:  # noqa: ANN401 (an Arrow array)
    """Returns the values of an Arrow array of numbers, one behind the other."""
    if source.null_count:
        raise UsageError("an Arrow array with nulls has no elements of a fixed size")
    values = source.buffers()[1] or b""
    width = source.type.bit_width // 8
    start = source.offset * width
    return memoryview(values)[start : start + len(source) * width]


def _pieces(view: memoryview, element_size: int) -> Batches:
    """Hands a buffer over in pieces of whole elements."""
    view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    if element_size < 1 or len(view) % element_size:
        raise UsageError(
            f"a buffer of {len(view)} bytes has no elements of {element_size} bytes (element_size)"
        )
    step = max(1, (PACKED_BYTES // 4) // element_size) * element_size
    for start in range(0, len(view), step):
        yield ReactiveElements.packed(view[start : start + step])


def opened(source: object, element_size: int) -> Batches | None:
    """Returns the batches of a source that waits for nothing; None for other iterables.

    Raises:
        UsageError: The source is nothing that can be published.
    """
    view = None if _is_elements(source) else view_of(source)
    if isinstance(source, Path):
        batches = _file(source, element_size)
    elif _is_elements(source):
        batches = _arrow(source, element_size)
    elif view is not None:
        batches = _pieces(view, element_size)
    elif isinstance(source, Sequence) and not isinstance(source, str) and not element_size:
        batches = _sequence(source)
    else:
        return None
    return batches


def _arrow(source: Any, element_size: int) -> Batches:  # noqa: ANN401 (an Arrow object)
    """The values of an array, or the batches of a table."""
    if hasattr(source, "schema"):
        return _record_batches(source)
    if hasattr(source, "iterchunks"):
        return chain.from_iterable(_arrow(one, element_size) for one in source.iterchunks())
    if _width(source) is not None:
        return _pieces(_numbers(source), element_size)
    return iter([ReactiveElements(source)])


def _sequence(source: Sequence[Buffer | str]) -> Batches:
    items = iter(source)
    while batch := list(islice(items, _BATCH)):
        yield ReactiveElements([one.encode() if isinstance(one, str) else one for one in batch])


def _file(path: Path, element_size: int) -> Batches:
    step = max(1, _FILE_BYTES // element_size) * element_size if element_size else _FILE_BYTES
    with path.open("rb") as file:
        while data := file.read(step):
            yield packed(data) if element_size else ReactiveElements([data])


def _record_batches(source: _ArrowStream) -> Batches:
    """Each record batch as an Arrow IPC stream of its own."""
    import pyarrow as pa

    for batch in pa.RecordBatchReader.from_stream(source):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield ReactiveElements([sink.getvalue().to_pybytes()])


def elements_of(item: Any, element_size: int) -> ReactiveElements:  # noqa: ANN401
    """Returns an item of an iterable: one element, or with a size a buffer of some."""
    if isinstance(item, str):
        item = item.encode()
    if not element_size:
        view = None if isinstance(item, bytes) else view_of(item)
        return ReactiveElements([item if view is None else view.tobytes()])
    return packed(item)
