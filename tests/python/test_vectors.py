import os
from pathlib import Path

import pytest
import run_vectors
from vectors_lumberjack import VectorFailure, run_conversation, run_frame_vector

VECTORS = Path(__file__).parent.parent / "vectors"


def test_all_vectors_pass_at_every_cut(capsys):
    folders = [str(VECTORS), *filter(None, [os.environ.get("ACKLINE_VECTORS")])]
    code = run_vectors.main(folders)
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "lumberjack python: " in printed


def test_a_protocol_that_is_not_built_is_named(tmp_path, capsys):
    (tmp_path / "relink").mkdir()
    (tmp_path / "relink" / "frames.json").write_text('{"protocol":"relink","vectors":[{},{}]}')
    assert run_vectors.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "relink: not built, 2 vectors\n"


def test_what_is_not_understood_or_not_expected_fails():
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
            run_conversation(conversation)
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
        run_frame_vector(vector)
