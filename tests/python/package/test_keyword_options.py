"""The keyword options of `connect`, `listen` and `adopt`, which come from the tables of options."""

import importlib
import inspect
import subprocess
import sys

import pytest
from support.commands import ROOT

from ackline import UsageError, bpmux, lumberjack, micromsg, relink
from ackline._table import HANDED_OVER, rows
from ackline.aio import bpmux as aio_bpmux
from ackline.aio import lumberjack as aio_lumberjack
from ackline.aio import micromsg as aio_micromsg
from ackline.aio import relink as aio_relink

MODULES = {
    "lumberjack": (lumberjack, aio_lumberjack),
    "relink": (relink, aio_relink),
    "bpmux": (bpmux, aio_bpmux),
    "micromsg": (micromsg, aio_micromsg),
}
CALLS = [
    *((name, call) for name in MODULES for call in ("connect", "listen")),
    ("relink", "adopt"),
    ("micromsg", "serve"),
]
KNOWN = {"url", "state", "endpoints", "timeout", "spool", "queues"}
"""Arguments of calls that are no options."""


def test_what_repeats_the_tables_is_as_written() -> None:
    command = [sys.executable, ROOT / ".ci/options", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("protocol", "call"), CALLS)
def test_a_call_shows_its_options_and_has_a_type_for_them(protocol: str, call: str) -> None:
    options = rows(f"{protocol}.{call}")
    assert len(options) > 12
    typing = importlib.import_module(f"ackline._{protocol}_options")
    typed = getattr(typing, f"{protocol.capitalize()}{call.capitalize()}Options")
    assert typed.__annotations__.keys() == options.keys()
    for module in MODULES[protocol]:
        assert getattr(module, f"{call.capitalize()}Options") is typed
        shown = inspect.signature(getattr(module, call)).parameters
        assert shown.keys() - options.keys() <= KNOWN
        assert options.keys() <= shown.keys()
    for name in options:
        assert f"        {name}: " in (typed.__doc__ or ""), name


@pytest.mark.parametrize(("protocol", "call"), CALLS)
def test_a_misspelt_option_names_the_nearest(protocol: str, call: str) -> None:
    words = f"{protocol}.{call} has no option conect_timeout"
    nearest = {"listen": "", "serve": "frame_timeout"}.get(call, "connect_timeout")
    near = rf" \(did you mean {nearest}\?\)" if nearest else ""
    given = {"state": b""} if call == "adopt" else {}
    for module in MODULES[protocol]:
        with pytest.raises(UsageError, match=words + near):
            getattr(module, call)(f"{protocol}://127.0.0.1:1/x", conect_timeout=1, **given)


def test_adopt_takes_nothing_that_the_link_brings() -> None:
    for name in HANDED_OVER - {"state"}:
        with pytest.raises(UsageError, match=f"relink.adopt has no option {name}"):
            relink.adopt("relink://127.0.0.1:1/x", b"", **{name: 1})


TYPED = """
from ackline import relink

options: relink.ConnectOptions = {"send_window": 7, "ping_after": None, "memory": "64MiB"}
relink.connect("relink://127.0.0.1:1/x", **options)
relink.connect("relink://127.0.0.1:1/x", send_windw=7)
relink.listen("relink://127.0.0.1:0/x", send_window="seven")
"""


def test_a_type_checker_knows_the_options(tmp_path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "typed.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(told) == 2, done.stdout
    assert 'typed.py:6: error: Unexpected keyword argument "send_windw"' in told[0]
    assert "typed.py:7: error" in told[1]
    assert "send_window" in told[1]
