import pickle
from pathlib import Path

import pytest

from ackline import exceptions as exc
from ackline import relink
from ackline.cli.values import with_dashes
from ackline.sansio import Machine

ERRORS = [
    exc.AcklineError("plain"),
    exc.ProtocolError("bad", protocol="lumberjack", code="lumberjack.overrun", offset=7),
    exc.ProtocolError("large", protocol="bpmux", code="bpmux.x", offset=7, option="memory"),
    exc.UsageError("no such window", "unknown_window"),
    exc.LinkClosed("over"),
    exc.LinkLost("gone", 3),
    exc.TransportError("refused"),
    exc.LinkTimeout("late"),
    exc.ForkError("forked"),
    exc.SpoolError("locked", "spool.locked"),
    exc.StateError("no space"),
    exc.StreamFailed("no space"),
    exc.PeerCancelled("enough", b"why"),
    exc.PeerFailed("no space"),
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


def test_errors_derive_from_pythons_own():
    assert issubclass(exc.UsageError, ValueError)
    assert issubclass(exc.LinkLost, exc.LinkClosed)
    assert issubclass(exc.LinkClosed, ConnectionError)
    assert issubclass(exc.TransportError, ConnectionError)
    assert issubclass(exc.LinkTimeout, TimeoutError)
    assert issubclass(exc.ForkError, RuntimeError)
    assert issubclass(exc.StateError, OSError)


def test_a_protocol_error_names_its_option() -> None:
    reader = Machine("lumberjack", "reader", max_json_bytes=4)
    with pytest.raises(exc.ProtocolError) as raised:
        reader.receive(0, b"2W\x00\x00\x00\x012J\x00\x00\x00\x01\x00\x00\x00\x05")
    assert raised.value.option == "max_json_bytes"
    assert "max_json_bytes" in str(raised.value)
    assert "--" not in str(raised.value)


def test_a_path_that_looks_like_an_option_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "no--such-dir" / "max_part_bytes"
    with pytest.raises(exc.UsageError) as refused:
        relink.connect("relink://127.0.0.1:1/x", state=path)
    assert str(path) in str(refused.value)
    closed = exc.StateError(f"write {path}: no space")
    assert with_dashes(closed, ["max_part_bytes"]) == f"write {path}: no space"


def test_the_command_line_names_the_option_of_an_error_and_no_other() -> None:
    text = "5 bytes are above 4 (max_part_bytes), not (max_channels) (at byte 9 of the connection)"
    error = exc.ProtocolError(
        text, protocol="relink", code="relink.limit_exceeded", offset=9, option="max_part_bytes"
    )
    told = "5 bytes are above 4 (--max-part-bytes), not (max_channels)"
    assert with_dashes(error, ["max_part_bytes", "max_channels"]) == told
