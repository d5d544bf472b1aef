"""`make sync`: the modules for threads are those for asyncio, translated."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from textwrap import indent

import pytest
from support.commands import ROOT


@pytest.fixture(scope="module")
def sync():
    loader = SourceFileLoader("sync", str(ROOT / ".ci/sync"))
    module = module_from_spec(spec_from_loader("sync", loader))
    # Its data classes look for their module.
    sys.modules["sync"] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        loader.exec_module(module)
    yield module
    del sys.modules["sync"]


@pytest.fixture
def tree(tmp_path):
    """A copy of the files that the script reads and writes."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/sync", tmp_path / ".ci/sync")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    leave_out = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "python/ackline", tmp_path / "python/ackline", ignore=leave_out)
    return tmp_path


def run(tree, *arguments):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, tree / ".ci/sync", *arguments],
        env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def translated(sync, source):
    return sync.translated(source, "one", sync.Docs()).split("\n", 1)[1]


CODE = {
    "async def f(): ...": "def f(): ...",
    "await f(await g())": "f(g())",
    "(await f())[0]": "f()[0]",
    "(await f()).x": "f().x",
    "(1, await f())": "(1, f())",
    "async with await f() as one: ...": "with f() as one: ...",
    "async for one in two: ...": "for one in two: ...",
    "for one in two: yield one": "yield from two",
    "for one in two: yield three": "for one in two: yield three",
    "x.__aexit__(y.wait_async)": "x.__exit__(y.wait)",
    "from ackline.aio._wait import ready": "from ackline._wait import ready",
    "from ackline._wait import ready": "from ackline._wait import ready",
    'f: Callable[[A], Awaitable[B]] = "äöü"; await g()': 'f: Callable[[A], B] = "äöü"; g()',
    'async def f() -> Connecting["C"]: ...': 'def f() -> "C": ...',
    "Connecting(f, a, b)": "f(a, b)",
    "await ready(x.wait_async, left(y))": "x.wait(left(y))",
    'await ready(partial(x.wait_async, "room", size=n), t)': 'x.wait("room", t, size=n)',
    "if not await outcome(partial(x.call_async, p), t): ...": "if not x.call(p, t): ...",
    "with Abandonable(a, b):\n    one()\n    await two()": "one()\ntwo()",
    "with suppress(A):\n    await two()": "with suppress(A):\n    two()",
    "f()  # for `async with`": "f()  # for `with`",
}


@pytest.mark.parametrize(("source", "threads"), CODE.items())
def test_code_loses_its_awaits_and_its_waits_block(sync, source, threads):
    inside = translated(sync, "async def g():\n" + indent(source, "    "))
    assert inside.rstrip() == "def g():\n" + indent(threads, "    ")


WRONG = {
    "async def f():\n    return [one async for one in two]": "comprehension",
    "async def f(arm):\n    await ready(arm, 1)": "a wait for arm",
    "async def f():\n    await asyncio.sleep(1)": "asyncio",
    "async def f():\n    await ready(partial(x, await y), 1)": "await",
    "def f():\n    'a'": "quotes",
}


@pytest.mark.parametrize(("source", "said"), WRONG.items())
def test_code_that_cannot_be_translated_is_refused(sync, source, said):
    with pytest.raises(sync.WrongError, match=said):
        translated(sync, source)


DOCSTRINGS = {
    "An `async with`.": "A `with`.",
    "An `async with` block.": "A `with` block.",
    "One for asyncio: two.": "One for threads: two.",
    "One.||For threads see `ackline.x`.|": "One.||For asyncio see `ackline.aio.x`.|",
    "One.||``await`` it, or use it with|``async with``.|": "One.",
    "One.||Args:|    x: In|        one.|    y: An `async with`.|": (
        "One.||Args:|    x: In|        one.|    y: A `with`.|"
    ),
    "One.||Example:|    >>> async with await f() as x:|    ...     await x.go()|": (
        "One.||Example:|    >>> with f() as x:|    ...     x.go()|"
    ),
}
"""Docstrings with a bar for each end of a line."""


@pytest.mark.parametrize(("docstring", "threads"), DOCSTRINGS.items())
def test_docstrings_speak_of_threads(sync, docstring, threads):
    before, after = (f'"""{text}"""'.replace("|", "\n    ") for text in (docstring, threads))
    after = after.replace("\n    \n", "\n\n")
    assert sync.Docs().docstring(before, 4) == after


def test_a_paragraph_that_changes_is_wrapped_anew(sync):
    sentence = "An `async with` block ends here, and then there are some more words " * 3
    new = sync.Docs().docstring(f'"""One.\n\n    {sentence.strip()}\n    """', 4)
    assert max(map(len, new.splitlines())) <= 100
    assert new.count("    ") == new.count("\n") - 1


def test_a_module_for_threads_that_was_changed_by_hand_is_told(tree):
    assert run(tree, "--check").returncode == 0, "the repository's own are as written"
    module = tree / "python/ackline/relink.py"
    before = module.read_text("utf-8")
    module.write_text(before.replace("Listens for links.", "Listens for lnks."))
    checked = run(tree, "--check")
    assert checked.returncode == 1
    assert '+    """Listens for links.' in checked.stderr
    assert "change the module in python/ackline/aio instead, and run `make sync`" in checked.stderr
    written = run(tree)
    assert (written.returncode, written.stdout) == (0, "wrote python/ackline/relink.py\n")
    assert module.read_text("utf-8") == before


def test_a_sentence_that_no_docstring_has_is_told(tree):
    links = tree / "python/ackline/aio/_relink_links.py"
    links.write_text(links.read_text("utf-8").replace("A cancelled `send_many` may", "It may"))
    checked = run(tree, "--check")
    assert checked.returncode == 1
    assert "no docstring has these sentences: ['A cancelled `send_many` may" in checked.stderr
