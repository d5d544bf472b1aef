"""Schemas of payloads, inferred from a sample: as DDL and for Arrow."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ackline import _core

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Inferred"]

_PLACES = 10


@dataclass(frozen=True, slots=True)
class Inferred:
    """The columns that the payloads of a sample would fill.

    Attributes:
        ddl: The columns as Spark's DDL, one on each line.
        events: Events that were examined.
        malformed: Examined events that were no JSON object.
        shadowed: Members that are no columns, because every event has a column of their name, or
            because the name is ``_rescued`` or ``_corrupt_record``; the column ``_rescued`` takes
            them.
        names_left_out: Times that a member was passed over, because there were 2,000 names already,
            or because its name has an empty part (``a..b``) or too many parts.
    """

    ddl: str
    events: int
    malformed: int
    shadowed: tuple[str, ...]
    names_left_out: int
    _arrow: bytes = field(repr=False)

    @classmethod
    def of(cls, inference: _core.Inference) -> Self:
        """Returns the result of an inference."""
        return cls(
            ddl=inference.ddl,
            events=inference.events,
            malformed=inference.malformed,
            shadowed=tuple(inference.shadowed),
            names_left_out=inference.names_left_out,
            _arrow=inference.arrow(),
        )

    def schema(self) -> "pa.Schema":
        """The columns for `Spool.read` (needs pyarrow)."""
        import pyarrow as pa

        with pa.ipc.open_stream(self._arrow) as stream:
            return stream.schema


def sampled(first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of [first, last), in order, with at most `most` positions in all."""
    if last - first <= most:
        if first < last:
            yield first, last
        return
    places = min(_PLACES, most)
    for place in range(places):
        low = first + (last - first) * place // places
        yield low, low + most // places
