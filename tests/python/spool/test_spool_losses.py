"""Losses and damage in a spool: they are named, skipped on demand, and mended."""

import json
from pathlib import Path

import pytest
from support.commands import DEADLINE, ackline

from ackline import Receiver, Spool, SpoolError, UsageError, lumberjack
from ackline.spool import Loss

FIRST, LOST, LAST = 30, 20, 10
END = FIRST + LOST + LAST
URL = ["lumberjack://127.0.0.1:0"]


def send(path: Path, *windows: int, first: int = 0) -> None:
    """Sends windows of events, each a group of its own."""
    with (
        Receiver(URL, spool=path) as receiver,
        lumberjack.connect(receiver.urls[0], compression=0) as writer,
    ):
        for count in windows:
            writer.send([b'{"n":%d}' % n for n in range(first, first + count)], timeout=DEADLINE)
            first += count


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").glob("*.arrows"))


def flip(path: Path, needle: bytes) -> None:
    """Damages one byte of a payload."""
    content = bytearray(path.read_bytes())
    content[content.index(needle)] ^= 1
    path.write_bytes(content)


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """A spool whose positions 30 to 50 the disk lost; it has gone on behind them."""
    path = tmp_path / "spool"
    send(path, FIRST, LOST)
    (segment,) = segments(path)
    content = segment.read_bytes()
    # Into the last group, past the stream's end marker and the padding of its page.
    segment.write_bytes(content[: content.rindex(b'"n":%d}' % (FIRST + LOST - 1))])
    send(path, LAST, first=FIRST + LOST)
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A spool with a flipped bit in positions 30 to 50, which nobody has noted."""
    path = tmp_path / "spool"
    send(path, FIRST, LOST, LAST)
    flip(segments(path)[0], b'"n":%d}' % (FIRST + 5))
    return path


def positions(path: Path, **how: str) -> list[int]:
    events = Spool(path).read(columns=["position"], **how)  # type: ignore[arg-type]
    return [json.loads(line)["position"] for line in events.json_lines()]


AROUND = [*range(FIRST), *range(FIRST + LOST, END)]


def test_a_loss_is_named_wherever_the_spool_is_asked(lossy):
    spool = Spool(lossy)
    (loss,) = spool.losses()
    assert loss == Loss(FIRST, FIRST + LOST, "lost", loss.noted)
    assert spool.holes() == spool.holes(0, END, check=True) == [loss]
    assert spool.holes(35, 40) == [Loss(35, 40, "lost", loss.noted)]
    assert spool.holes(0, FIRST) == []
    report = spool.verify()
    assert (report.problems, report.losses) == ([], [loss])


def test_strict_reading_ends_at_a_loss_and_skipping_goes_around_it(lossy):
    spool = Spool(lossy)
    events = spool.read(columns=["position"])
    found = []
    with pytest.raises(SpoolError) as error:
        found.extend(events.json_lines())
    assert error.value.code == "spool.gap"
    assert len(found) == FIRST
    events = spool.read(columns=["position"], on_loss="skip")
    assert events.skipped == []
    assert events.to_table()["position"].to_pylist() == AROUND
    assert [(loss.start, loss.end) for loss in events.skipped] == [(FIRST, FIRST + LOST)]
    with pytest.raises(UsageError, match="on_loss must be fail or skip"):
        spool.read(on_loss="ignore")  # type: ignore[arg-type]


def test_a_batch_ends_before_a_loss_or_goes_around_it(lossy):
    spool = Spool(lossy)
    assert spool.end_for(0) == FIRST
    with pytest.raises(SpoolError) as error:
        spool.end_for(FIRST)
    assert error.value.code == "spool.gap"
    assert spool.end_for(0, on_loss="skip") == END
    assert spool.end_for(0, max_rows=FIRST + LAST, on_loss="skip") == END
    with pytest.raises(SpoolError):
        spool.slices(0, END, max_slices=2)
    parts = spool.slices(0, END, max_slices=2, on_loss="skip")
    assert [position for part in parts for position in range(part.start, part.end)] == AROUND


def test_damage_that_is_not_noted_is_found_by_reading(damaged):
    spool = Spool(damaged)
    assert spool.losses() == []
    (hole,) = spool.holes(check=True)
    assert (hole.start, hole.end, hole.why) == (FIRST, FIRST + LOST, "corrupt")
    assert positions(damaged, on_loss="skip") == AROUND
    with pytest.raises(SpoolError) as error:
        positions(damaged)
    assert error.value.code == "spool.corrupt"
    assert len(spool.verify().problems) == 1


def test_mend_notes_damage_and_touches_nothing_else(damaged):
    planned = Spool.mend(damaged, dry_run=True)
    assert Spool(damaged).losses() == []
    assert not (damaged / "lost+found").exists()
    mended = Spool.mend(damaged)
    assert mended.position == planned.position == END
    assert [step.what for step in mended.steps] == [step.what for step in planned.steps]
    assert ("loss_noted", FIRST, FIRST + LOST) in [
        (step.what, step.start, step.end) for step in mended.steps
    ]
    (loss,) = Spool(damaged).losses()
    assert (loss.start, loss.end, loss.why) == (FIRST, FIRST + LOST, "corrupt")
    assert list((damaged / "lost+found").iterdir())
    assert positions(damaged, on_loss="skip") == AROUND
    assert Spool(damaged).verify().problems == []
    assert Spool.mend(damaged).steps == []


def test_mend_is_refused_while_a_receiver_writes(tmp_path):
    path = tmp_path / "spool"
    with Receiver(URL, spool=path), pytest.raises(SpoolError) as error:
        Spool.mend(path)
    assert error.value.code == "spool.locked"
    run = ackline("spool", "mend", str(tmp_path))
    assert run.returncode == 1
    assert "spool.not_a_spool" in run.stderr


def test_the_command_mends_and_says_each_step(damaged):
    run = ackline("spool", "verify", str(damaged))
    assert run.returncode == 1
    assert f"`ackline spool mend {damaged} --dry-run`" in run.stderr
    planned = ackline("spool", "mend", str(damaged), "--dry-run")
    assert planned.returncode == 0, planned.stderr
    *steps, last = planned.stdout.splitlines()
    assert any(step.startswith("note a loss: ") for step in steps)
    assert last.startswith(f"{len(steps)} steps to do, nothing was changed; after them")
    run = ackline("spool", "mend", str(damaged), "--json")
    assert run.returncode == 0, run.stderr
    *done, end = [json.loads(line) for line in run.stdout.splitlines()]
    assert {line["event"] for line in done} == {"mend_step"}
    assert end == {"event": "mended", "position": END, "steps": len(steps), "dry_run": False}
    assert ackline("spool", "verify", str(damaged)).returncode == 0
    again = ackline("spool", "mend", str(damaged))
    assert (again.returncode, again.stdout) == (
        0,
        f"nothing to mend, the next event gets position {END}\n",
    )


def test_the_command_lists_losses_and_prints_the_events_around_them(lossy):
    run = ackline("spool", "ls", str(lossy), "--json")
    assert run.returncode == 0, run.stderr
    first, loss, *blocks = [json.loads(line) for line in run.stdout.splitlines()]
    assert (first["losses"], first["lost"]) == (1, LOST)
    members = {"event": "loss", "from": FIRST, "to": FIRST + LOST, "why": "lost"}
    assert loss == members | {"noted": loss["noted"]}
    assert [block["position"] for block in blocks] == [0, FIRST + LOST]
    assert f"{LOST} positions are lost, in 1 ranges" in ackline("spool", "ls", str(lossy)).stdout
    verified = ackline("spool", "verify", str(lossy), "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["losses"] == [loss]
    run = ackline("spool", "cat", str(lossy))
    assert run.returncode == 1
    assert len(run.stdout.splitlines()) == FIRST
    assert "spool.gap" in run.stderr
    run = ackline("spool", "cat", str(lossy), "--on-loss", "skip")
    assert run.returncode == 0
    assert len(run.stdout.splitlines()) == FIRST + LAST
    assert f"positions {FIRST} to {FIRST + LOST} were skipped: lost" in run.stderr
    assert ackline("spool", "cat", str(lossy), "--on-loss", "no").returncode == 2


def test_ls_goes_on_behind_a_damaged_group_and_names_it(damaged):
    run = ackline("spool", "ls", str(damaged), "--json")
    assert run.returncode == 1
    _, *blocks = [json.loads(line) for line in run.stdout.splitlines()]
    assert [block["position"] for block in blocks] == [0, FIRST + LOST]
    assert "spool.corrupt" in run.stderr
    assert f"`ackline spool mend {damaged}`" in run.stderr
