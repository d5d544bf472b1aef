import json
import pickle
import threading

import pyarrow as pa
import pytest
from support.commands import ackline, deliver_and_reset
from test_cli_stdout import LEFT, told

from ackline import Receiver, Spool, SpoolError, UsageError, lumberjack


@pytest.fixture
def kept(tmp_path):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:
        with lumberjack.connect(receiver.urls[0], batch_events=100) as writer:
            writer.send([b'{"n":%d}' % n for n in range(1000)], timeout=20)
        yield Spool(tmp_path / "spool")


def test_a_range_is_read_as_arrow_by_plain_pyarrow(kept):
    table = pa.table(kept.read(10, 20, columns=["position", "payload"]))
    assert table.column_names == ["position", "payload"]
    assert table["position"].to_pylist() == list(range(10, 20))
    assert table["payload"].to_pylist() == [b'{"n":%d}' % n for n in range(10, 20)]


def test_all_columns_have_the_types_that_spark_takes(kept):
    table = kept.read().to_table()
    assert table.num_rows == 1000
    types = {field.name: field.type for field in table.schema}
    assert types["received_at"] == pa.timestamp("us", "UTC")
    assert types["attributes"] == pa.map_(pa.string(), pa.string())
    assert types["parts"].value_type == pa.binary()
    assert types["payload"] == pa.binary()


def test_batches_can_be_iterated_with_several_threads(kept):
    batches = list(kept.read(threads=2, batch_rows=64, columns=["position"]))
    assert all(batch.num_rows <= 64 for batch in batches)
    positions = [position for batch in batches for position in batch["position"].to_pylist()]
    assert positions == list(range(1000))


def test_slices_together_are_the_range(kept):
    parts = kept.slices(5, 995, max_slices=4)
    read = [
        position
        for part in pickle.loads(pickle.dumps(parts))
        for position in Spool.read_slice(part, columns=["position"])
        .to_table()["position"]
        .to_pylist()
    ]
    assert read == list(range(5, 995))


def test_events_can_be_read_once(kept):
    events = kept.read()
    events.to_table()
    with pytest.raises(ValueError, match="read already"):
        events.to_table()


def test_a_position_above_the_durable_one_is_an_error(kept):
    with pytest.raises(SpoolError) as error:
        kept.read(0, 1001).to_table()
    assert error.value.code == "spool.behind_checkpoint"


def test_waiting_for_a_position_ends_when_it_is_durable(kept):
    assert kept.wait_durable(1000, timeout=20) == 1000
    assert kept.wait_durable(1001, timeout=0.01) == 1000


def test_a_spool_is_pickled_as_its_path(kept):
    assert pickle.loads(pickle.dumps(kept)).uuid == kept.uuid


def test_a_range_is_the_same_while_the_receiver_writes(tmp_path):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:

        def send() -> None:
            with lumberjack.connect(receiver.urls[0], batch_events=50) as writer:
                writer.send([b'{"n":%d}' % n for n in range(2000)], timeout=20)

        sending = threading.Thread(target=send)
        sending.start()
        spool = Spool(tmp_path / "spool")
        while spool.durable() < 2000:
            end = spool.durable()
            positions = spool.read(0, end, columns=["position"]).to_table()["position"]
            assert positions.to_pylist() == list(range(end))
        sending.join()


@pytest.fixture
def resent(tmp_path):
    """A spool with ten events, and six of them again."""
    events = [b'{"n":%d}' % n for n in range(10)]
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:
        for sent in (events, events[4:]):
            deliver_and_reset(receiver, *sent)
    return Spool(tmp_path / "spool")


def test_repeats_are_marked_or_left_out(resent):
    every = resent.read(columns=["position", "repeat"]).to_table()
    assert every["position"].to_pylist() == list(range(16))
    assert every["repeat"].to_pylist() == [False] * 10 + [True] * 6
    kept = resent.read(5, 13, repeats="skip").to_table()
    assert kept["position"].to_pylist() == [5, 6, 7, 8, 9]
    part = resent.slices(0, 16, max_slices=1)
    kept = [Spool.read_slice(one, repeats="skip").to_table().num_rows for one in part]
    assert sum(kept) == 10
    for refuse in (
        lambda: resent.read(repeats="drop"),
        lambda: Spool.read_slice(part[0], repeats=""),
    ):
        with pytest.raises(UsageError, match="repeats must be mark or skip"):
            refuse()


def test_a_digest_is_built_where_it_is_named(resent):
    table = resent.read(columns=["position", "digest"]).to_table()
    digests = table["digest"].to_pylist()
    assert {len(one) for one in digests} == {16}
    assert digests[10:] == digests[4:10]
    assert len(set(digests)) == 10
    line = next(resent.read(0, 1, columns=["digest"]).json_lines())
    assert json.loads(line) == {"digest": digests[0].hex()}
    assert "digest" not in resent.read(0, 1).to_table().column_names


@pytest.mark.parametrize("command", ["cat", "ls"])
def test_a_reader_that_has_left_is_told(resent, command):
    line = b"ackline: standard output cannot be written: its reader has left\n"
    assert told(["spool", command, resent.path], LEFT) == (74, line)


def test_cat_prints_repeats_or_leaves_them_out(resent):
    def cat(*more):
        done = ackline("spool", "cat", resent.path, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert len(cat()) == len(cat("--repeats", "mark")) == 16
    kept = cat("--repeats", "skip", "--json")
    assert [json.loads(line)["position"] for line in kept] == list(range(10))
    refused = ackline("spool", "cat", resent.path, "--repeats", "drop")
    assert refused.returncode == 2
    assert "--repeats is mark or skip" in refused.stderr


def test_a_memory_that_is_too_small_is_named_with_its_option(tmp_path):
    spool = tmp_path / "spool"
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=spool) as receiver,
        lumberjack.connect(receiver.urls[0]) as writer,
    ):
        writer.send([b'{"n":0}', b'{"n":"%s"}' % (b"x" * 3_000_000)], timeout=20)
    for command in (["spool", "cat"], ["schema", "infer"]):
        run = ackline(*command, str(spool), "--memory", "4095KiB")
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr == "ackline: --memory is 4095KiB; it is 4MiB at least\n"
        run = ackline(*command, str(spool), "--memory", "4MiB")
        assert run.returncode == 1
        assert run.stderr.startswith("ackline: spool.memory: ")
        assert "an event of the block at position 0 has 2097" in run.stderr
        assert "--memory" in run.stderr
        assert ackline(*command, str(spool), "--memory", "32MiB").returncode == 0
    with pytest.raises(UsageError, match="memory"):
        Spool(spool).read(memory=1000)
    with pytest.raises(UsageError, match="memory"):
        Spool(spool).read(memory=1000, schema=pa.schema({"n": pa.string()}))


def test_json_lines_are_the_same_whatever_the_memory_is(tmp_path):
    spool = tmp_path / "spool"
    sizes = [10, 700_000, 20, 600_000, 500_000, 30] * 20
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=spool) as receiver,
        lumberjack.connect(receiver.urls[0]) as writer,
    ):
        writer.send([b'"%s"' % (b"x" * size) for size in sizes], timeout=60)
    for threads, memory in ((1, 4 << 20), (4, 16 << 20), (2, 512 << 20)):
        lines = Spool(spool).read(threads=threads, memory=memory).json_lines()
        found = [json.loads(line) for line in lines]
        assert [one["position"] for one in found] == list(range(120))
        assert [len(one["payload"]) - 2 for one in found] == sizes
