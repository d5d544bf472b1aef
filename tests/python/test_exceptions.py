import pickle

import pytest

from ackline import exceptions as exc

ERRORS = [
    exc.AcklineError("plain"),
    exc.ProtocolError("bad", protocol="lumberjack", code="lumberjack.overrun", offset=7),
    exc.UsageError("no such window", "unknown_window"),
    exc.LinkClosed("over"),
    exc.LinkLost("gone", 3),
    exc.TransportError("refused"),
    exc.LinkTimeout("late"),
    exc.ForkError("forked"),
    exc.SpoolError("locked", "spool.locked"),
    exc.StateError("no space"),
    exc.PeerCancelled("enough", b"why"),
    exc.RequestClosed("no answer", b"why"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: exc.AcklineError):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_every_error_is_listed_and_has_the_base():
    assert {type(error).__name__ for error in ERRORS} == set(exc.__all__)
    assert all(isinstance(error, exc.AcklineError) for error in ERRORS)


def test_errors_are_what_python_calls_them():
    assert issubclass(exc.UsageError, ValueError)
    assert issubclass(exc.LinkLost, exc.LinkClosed)
    assert issubclass(exc.LinkClosed, ConnectionError)
    assert issubclass(exc.TransportError, ConnectionError)
    assert issubclass(exc.LinkTimeout, TimeoutError)
    assert issubclass(exc.ForkError, RuntimeError)
    assert issubclass(exc.StateError, OSError)
