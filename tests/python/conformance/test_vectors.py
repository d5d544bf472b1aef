import os
import re

import pytest
import run_vectors
from support.commands import ROOT

from vectors import VectorFailure, matches, run_conversation, run_frame_vector, without_nones

VECTORS = ROOT / "tests" / "vectors"


def test_all_vectors_pass_at_every_cut(capsys):
    folders = [str(VECTORS), *filter(None, [os.environ.get("ACKLINE_VECTORS")])]
    code = run_vectors.main(folders)
    printed = capsys.readouterr().out
    assert code == 0, printed
    for protocol in ("bpmux", "lumberjack", "micromsg", "reactive", "relink"):
        counts = r"[1-9]\d* frames, [1-9]\d* conversations, \d+ splits, 0 failed"
        some = rf"^{protocol} python: {counts}$"
        assert re.search(some, printed, re.MULTILINE), printed


def test_a_protocol_that_is_not_built_is_named(tmp_path, capsys):
    (tmp_path / "unbuilt").mkdir()
    text = '{"protocol":"unbuilt","vectors":[{},{}]}'
    (tmp_path / "unbuilt" / "frames.json").write_text(text)
    assert run_vectors.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "unbuilt: not built, 2 vectors\n"


def test_an_unknown_or_unexpected_vector_fails():
    base = {"name": "x", "role": "reader", "config": {}}
    bad = [
        base | {"steps": [{"jump": 1}]},
        base | {"steps": [{"eof": True}]},
        base | {"steps": [{"recv": "325700000000"}]},
        base | {"steps": [{"call": {"verb": "dance"}}]},
        base | {"config": {"speed": 1}, "steps": []},
        base | {"steps": [], "mood": "good"},
    ]
    for conversation in bad:
        try:
            run_conversation("lumberjack", conversation)
        except VectorFailure:
            continue
        raise AssertionError(conversation)


def test_a_wrong_frame_vector_fails():
    vector = {
        "name": "x",
        "context": {"unit": "frame", "from": "writer"},
        "hex": "325700000003",
        "frames": [{"type": "window", "version": 2, "window_size": 4}],
        "canonical": True,
    }
    with pytest.raises(VectorFailure, match="window_size"):
        run_frame_vector("lumberjack", vector)


def test_a_relink_vector_that_is_not_understood_or_not_expected_fails():
    link = {
        "start": "established",
        "connector_channel_id_size": 1,
        "listener_channel_id_size": 1,
        "connector_transactions": False,
        "listener_transactions": False,
    }
    base = {"name": "x", "role": "connector", "config": link}
    ping = {"call": {"verb": "ping"}}
    bad = [
        base | {"steps": [{"jump": 1}]},
        base | {"steps": [{"transmit": "00"}]},
        base | {"steps": [ping]},
        base | {"steps": [ping, {"transmit": "2000000000000000"}, {"closed": True}]},
        base | {"steps": [ping | {"connection": 0}]},
        base | {"steps": [{"call": {"verb": "dance"}}]},
        base | {"steps": [{"call": {"verb": "ping", "loud": True}}]},
        base | {"steps": [{"recv": "e000000000000000"}]},
        base | {"config": link | {"speed": 1}, "steps": []},
        base | {"role": "dancer", "steps": []},
        base | {"steps": [], "mood": "good"},
    ]
    for conversation in bad:
        with pytest.raises(VectorFailure):
            run_conversation("relink", conversation)
    good = [ping, {"transmit": "2000000000000000"}]
    assert run_conversation("relink", base | {"steps": good}) == 0


def test_a_wrong_relink_frame_vector_fails():
    vector = {
        "name": "x",
        "context": {"unit": "version", "from": "connector"},
        "hex": "0000000000000000",
        "frames": [{"type": "version", "version": 1}],
        "canonical": True,
    }
    with pytest.raises(VectorFailure, match="version"):
        run_frame_vector("relink", vector)


def test_values_are_compared_by_kind():
    assert matches([{"a": 1}], [{"a": 1, "b": 2}])
    assert not matches({"a": 1}, {"a": 1, "b": 2}, in_full=True)
    for expected, came in ((1, 1.0), (1.0, 1), (1, True), ({"a": [20]}, {"a": [20.0]})):
        assert not matches(expected, came)
        assert not matches(expected, came, in_full=True)
    assert matches({"a": -5, "b": 1.5}, {"b": 1.5, "a": -5}, in_full=True)


def test_a_member_that_is_none_is_absent():
    assert matches({"a": 1, "b": None}, {"a": 1})
    assert not matches({"a": 1, "b": None}, {"a": 1, "b": 2})
    assert not matches({"a": 1}, {})
    assert without_nones([{"a": 1, "b": None}]) == [{"a": 1}]
