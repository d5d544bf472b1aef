"""Fixtures of the tests of bpmux."""

from collections.abc import Iterator

import pytest
from support.bpmux import pair as connected

from ackline import bpmux


@pytest.fixture
def pair() -> Iterator[tuple[bpmux.Connection, bpmux.Connection]]:
    """The connector's end and the listener's end."""
    with connected() as ends:
        yield ends
