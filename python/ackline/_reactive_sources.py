"""The sources of publishers: everything that becomes elements."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol, TypeGuard, cast

from ackline._payloads import Buffer
from ackline._reactive import PACKED_BYTES, UNBOUNDED, failed, packed, reason_of, view_of
from ackline._reactive_core import ReactiveElements, ReactiveNames
from ackline.exceptions import UsageError

__all__ = ["PublishersBase", "elements_of", "iterated", "opened"]

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
                elements of up to 64 KiB), an Arrow array without nulls (its values; those of a
                fixed-size list are one element), Arrow batches (a table: each batch is an element,
                an Arrow IPC stream), or a function that takes the whole name and returns any of
                these. An exception of the function rejects the subscription with its text. An
                iterator can be read once: give a function that makes one.
            element_size: The bytes of every element, which are packed then; None is the size of a
                number for arrays, and any size else. With a size an iterable's items may be
                buffers of several elements.

        Raises:
            UsageError: ``publisher_exists``, or the source or the size cannot be one.
        """
        if element_size is not None and (
            not isinstance(cast("Any", element_size), int) or not 0 <= element_size <= UNBOUNDED
        ):
            raise UsageError(f"element_size is {element_size!r}; it is a number of bytes")
        size = element_size
        if not _is_function(source):
            source, size = _checked(source, element_size)
        self._names.add(name, (source, size))

    reason = staticmethod(reason_of)
    failed = staticmethod(failed)

    def knows(self, name: str) -> bool:
        """Whether a publisher has the name."""
        return self._names.find(name) is not None

    @staticmethod
    def unknown(name: str) -> str:
        """Returns the reason for the rejection of a name that no publisher has."""
        return reason_of(UsageError(f"there is no publisher {name!r}"))

    def find(self, name: str) -> tuple[int, object]:
        """Returns the element size and the elements for a subscription.

        Raises:
            Exception: The subscription is to be rejected with the text.
        """
        found = self._names.find(name)
        if found is None:
            raise UsageError(self.unknown(name))
        source, size = found
        if not _is_function(source):
            return size, source
        source = source(name)
        try:
            source, size = _checked(source, size)
        except UsageError as error:
            # The subscriber cannot mend it, and the log has the reason.
            failed(error)
            raise UsageError("the function of this publisher returned no elements") from error
        return size, source


def _is_elements(source: object) -> bool:
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__")


def _is_function(source: object) -> TypeGuard[Callable[[str], object]]:
    return callable(source) and not _is_elements(source)


def _checked(source: object, element_size: int | None) -> tuple[object, int]:
    """Returns a source that can be published, and the size of every element, or 0.

    Raises:
        UsageError: It cannot be published.
    """
    if isinstance(source, str):
        raise UsageError("a publisher's source is a str: give bytes, or a list with it in it")
    if _is_elements(source):
        return _checked_arrow(source, element_size)
    size = element_size or 0
    if isinstance(source, Path):
        return source, size
    view = view_of(source)
    if view is not None:
        if isinstance(source, bytes | bytearray) and element_size is None:
            raise UsageError(
                "a publisher's source is bytes: give element_size, or a list with the bytes in it"
            )
        size = view.itemsize if element_size is None else element_size
        _check_size(view.nbytes, size)
    elif isinstance(source, Sequence):
        for first in source[:1]:
            elements_of(first, size)
    elif not any(hasattr(source, name) for name in ("__iter__", "__aiter__", "get_nowait")):
        raise UsageError(
            f"a publisher's source is {type(source).__name__}: give an iterable of bytes, an "
            "array, a pathlib.Path, a queue, or a function that returns one of these"
        )
    return source, size


def _checked_arrow(source: Any, element_size: int | None) -> tuple[object, int]:  # noqa: ANN401
    """The same for an Arrow object."""
    if hasattr(source, "schema"):
        if element_size:
            raise UsageError("record batches are elements of any size: leave element_size out")
        return source, 0
    if hasattr(source.type, "index_type"):
        # The values of a dictionary are what is published, not its indices.
        source = source.cast(source.type.value_type)
    kind, count = source.type, 1
    while hasattr(source.type, "list_size") and not source.null_count:
        # The values of each list are one element.
        count *= source.type.list_size
        source = source.combine_chunks() if hasattr(source, "iterchunks") else source
        source = source.flatten()
    if source.null_count:
        raise UsageError("an Arrow array has nulls: drop them, or fill them with a value")
    width = _width(source)
    if width is not None:
        size = width * count if element_size is None else element_size
        _check_size(len(source) * width, size)
        return source, size
    one = source.chunk(0) if hasattr(source, "iterchunks") and source.num_chunks else source
    try:
        ReactiveElements(one[:0])
    except UsageError:
        raise UsageError(
            f"an Arrow array of {kind} has no elements: give numbers, binary values, strings, or "
            "fixed-size lists of numbers (a bool can be cast to uint8)"
        ) from None
    return source, element_size or 0


def _check_size(size: int, element_size: int) -> None:
    """Refuses a buffer that has no whole elements."""
    if element_size < 1 or size % element_size:
        raise UsageError(
            f"a buffer of {size} bytes has no elements of {element_size} bytes (element_size)"
        )


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


def _numbers(source: Any) -> memoryview:  # noqa: ANN401 (an Arrow array)
    """Returns the values of an Arrow array of numbers, one behind the other."""
    values = source.buffers()[1] or b""
    width = source.type.bit_width // 8
    start = source.offset * width
    return memoryview(values)[start : start + len(source) * width]


def _pieces(view: memoryview, element_size: int) -> Batches:
    """Hands a buffer over in pieces of whole elements."""
    view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
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
        each = [one.encode() if isinstance(one, str) else one for one in batch]
        try:
            elements = ReactiveElements(each)
        except UsageError as error:
            raise UsageError("an element is neither bytes nor a str") from error
        yield elements


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
    """Returns an item of an iterable: one element, or with a size a buffer of some.

    Raises:
        UsageError: The item is neither.
    """
    if isinstance(item, str):
        item = item.encode()
    if element_size:
        return packed(item)
    view = None if isinstance(item, bytes) else view_of(item)
    if view is None and not isinstance(item, bytes):
        name = type(item).__name__
        raise UsageError(f"an element is of the type {name}: give bytes, a str, or a buffer")
    return ReactiveElements([item if view is None else view.tobytes()])


def iterated(source: Any) -> Iterator[Any]:  # noqa: ANN401
    """Returns the iterator of a source.

    Raises:
        UsageError: It has none.
    """
    try:
        return iter(source)
    except TypeError as error:
        raise UsageError("the source of this publisher is for another kind of program") from error
