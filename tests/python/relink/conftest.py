"""Fixtures of the tests of Relink."""

from collections.abc import Iterator

import pytest

from ackline import relink


@pytest.fixture
def listener() -> Iterator[relink.Listener]:
    with relink.listen("relink://127.0.0.1:0/orders") as listening:
        yield listening
