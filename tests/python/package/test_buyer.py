"""The buyer's figure counts rightly: its arithmetic, without Kafka, Filebeat and Spark."""

import importlib
import json
import os
import subprocess
import sys
import time

import pytest
from support.commands import ROOT

BENCH = ROOT / "tests/bench"


@pytest.fixture(scope="module", autouse=True)
def folder():
    # The benchmarks are programs of one folder, which import each other by name.
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


def module(name):
    return importlib.import_module(name)


@pytest.fixture
def table(tmp_path):
    """Writes a table as Spark's sink does; a batch is its commit time, times, numbers, repeats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(*batches):
        log = tmp_path / "_spark_metadata"
        log.mkdir()
        for batch, (committed, made, numbers, *repeats) in enumerate(batches):
            name = f"part-{batch}.parquet"
            marked = [number in repeats for number in numbers]
            rows = pa.table({"number": numbers, "repeat": marked, "made_us": made})
            pq.write_table(rows, tmp_path / name)
            entry = json.dumps({"path": f"file://{tmp_path}/{name}"})
            (log / str(batch)).write_text(f"v1\n{entry}\n")
            os.utime(log / str(batch), (committed, committed))
        return tmp_path

    return write


def test_generated_lines_carry_their_time_and_their_number(tmp_path):
    load = module("buyer_load")
    before = time.time_ns() // 1000
    took = load.generate(tmp_path / "log", 7, 500, 5000)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [int(line[17:27]) for line in lines] == list(range(7, 507))
    made = [int(line[:16]) for line in lines]
    assert made == sorted(made)
    assert before <= made[0]
    assert made[-1] <= time.time_ns() // 1000
    assert took >= 0.09


def test_a_load_at_the_ceiling_is_written_at_once(tmp_path):
    load = BENCH / "buyer_load.py"
    command = [sys.executable, load, tmp_path / "log", "0", "12345", "0"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    assert len((tmp_path / "log").read_text().splitlines()) == 12345


def test_lost_and_doubled_events_are_counted_in_the_table(table):
    buyer = module("buyer_count")
    directory = table(
        (100.0, [98_000_000, 99_000_000, 99_000_000], [1, 2, 2]),
        (102.0, [99_500_000, 98_000_000, 1], [4, 1, 99], 1),
    )
    found = buyer.count(buyer.rows_of(directory), 1, 4)
    assert (found.rows, found.lost, found.doubled, found.unmarked) == (5, 1, 2, 1)
    assert found.last_commit == 102.0
    # The first row of an event counts: 2 s, 1 s and 2.5 s.
    assert found.p50_ms == pytest.approx(2000)
    assert found.p99_ms == pytest.approx(2500)


def test_the_first_event_made_after_a_kill_ends_the_recovery(table):
    buyer = module("buyer_count")
    directory = table((100.0, [98_000_000], [0]), (102.0, [98_900_000, 99_500_000], [1, 2]))
    found = buyer.count(buyer.rows_of(directory), 0, 3, killed_at=99.0)
    figures = buyer.as_figures(found, begun=97.0, killed_at=99.0)
    assert figures["recovered_s"] == pytest.approx(3.0)
    assert figures["all_in_table_s"] == pytest.approx(5.0)


def test_an_empty_table_has_lost_everything(tmp_path):
    buyer = module("buyer_count")
    assert buyer.count(buyer.rows_of(tmp_path), 0, 10).lost == 10


def test_rows_are_counted_as_files_are_committed(table):
    buyer = module("buyer_count")
    directory = table((100.0, [1, 2], [0, 1]), (102.0, [3], [2]))
    assert buyer.Rising(directory).rows() == 3


def test_time_of_ended_processes_is_counted_once():
    watch = module("buyer_watch")
    clock = watch.Clock()
    seen = watch.Seen
    clock.note([seen(1, 0, 1.0, 0.0, "JVM"), seen(2, 1, 3.0, 0.0, "worker")])
    # The worker used half a second more after its last sample, and another process 2 s unseen.
    clock.note([seen(1, 0, 1.5, 5.5, "JVM")])
    assert clock.by_label({1}) == {"JVM": pytest.approx(4.0), "worker": pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("root", "command", "label"),
    [
        ("broker", "java -Xmx1G kafka.Kafka", "broker"),
        ("Spark", "/usr/bin/java -cp jars org.apache.spark.deploy.SparkSubmit", "Spark JVM"),
        ("Spark", "python tests/bench/buyer_spark.py {}", "Spark's Python driver"),
        ("Spark", "python -m pyspark.daemon pyspark.worker", "Python workers"),
        ("Spark", "python -m ackline.spark.planner", "Ackline's planner"),
    ],
)
def test_each_process_has_the_name_of_its_part(root, command, label):
    assert module("buyer_watch").label(root, command.split()) == label


def test_a_process_is_watched_with_its_time_and_memory(tmp_path):
    module_of = module("buyer_watch")
    (tmp_path / "file").write_bytes(b"x" * 8192)
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    code = f"print('ready', flush=True)\ninput()\n{busy}print('done', flush=True)\ninput()"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
        try:
            assert program.stdout.readline() == "ready\n"
            watch = module_of.Watch(tmp_path)
            watch.roots["receiver"] = program.pid
            watch.begin()
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "done\n"
            figures = watch.figures(1_000_000)
        finally:
            program.kill()
    assert 0.2 < figures["cpu_s_per_million"]["receiver"] < 3
    assert figures["cpu_s_per_million"]["total"] == figures["cpu_s_per_million"]["receiver"]
    assert figures["pss_mib"]["receiver"] > 1
    assert figures["processes"] == {"receiver": 1, "total": 1}
    assert figures["store_mib"]["at the end"] > 0


def run_of(side, cpu, lost=0):
    name = {"A": "broker", "B": "receiver"}[side]
    return {
        "side": side,
        "load": "5000",
        "profile": "defaults",
        "round": 1,
        "lost": lost,
        "p50_ms": 100.0,
        "cpu_s_per_million": {name: cpu, "total": cpu},
        "pss_mib": {},
        "processes": {},
        "store_mib": {},
    }


def test_the_report_sets_both_sides_beside_each_other_with_their_ratio():
    report = module("buyer_report").report
    text = report([run_of("A", 10.0), run_of("B", 2.0), run_of("B", 3.0), run_of("B", 2.5)])
    assert "### 5,000 events/s, defaults (rounds: A 1, B 3)" in text
    assert "| CPU s per million events: broker or receiver | 10.0 | 2.5 | 0.25 |" in text
    assert "| lost | 0 | 0 |  |" in text


def test_the_chart_has_a_bar_for_each_part_of_each_side():
    chart = module("buyer_report").chart
    picture = chart([run_of("A", 10.0), run_of("B", 2.5)])
    assert picture.count("<title>broker or receiver: 10.0 s</title>") == 1
    assert picture.count("<title>broker or receiver: 2.5 s</title>") == 1
    assert "5,000 events/s, defaults: Kafka" in picture
    failed = {"side": "A", "load": "5000", "profile": "defaults", "round": 2, "failed": "no broker"}
    assert chart([failed]).endswith("</svg>")


def test_the_report_tells_a_failed_run():
    failed = {"side": "A", "load": "5000", "profile": "defaults", "round": 2, "failed": "no broker"}
    text = module("buyer_report").report([run_of("B", 2.0), failed])
    assert "* A, round 2 FAILED: no broker" in text


def test_the_profiles_set_the_compression_of_both_outputs(tmp_path, monkeypatch):
    sides = module("buyer_sides")
    monkeypatch.setattr(sides, "fetched", lambda name: tmp_path / name)
    found = {
        (profile, side.letter): side(tmp_path, profile, flush=False).output()
        for profile in sides.PROFILES
        for side in sides.SIDES.values()
    }
    assert all(
        output["output.kafka.required_acks"] == -1 for (_, at), output in found.items() if at == "A"
    )
    assert not any("compression" in name for side in "AB" for name in found["defaults", side])
    assert found["equal", "A"]["output.kafka.compression_level"] == 3
    assert found["equal", "B"]["output.logstash.compression_level"] == 3
    assert found["recommended", "A"]["output.kafka.compression"] == "lz4"
    assert found["recommended", "B"]["output.logstash.compression_level"] == 1


@pytest.mark.parametrize(
    ("arguments", "rates"),
    [
        ([], [5000, 20_000, 0]),
        (["--rates", "100,ceiling", "--seconds", "2", "--ceiling-events", "5"], [100, 0]),
    ],
)
def test_the_command_line_names_loads(monkeypatch, arguments, rates):
    buyer = module("buyer")
    monkeypatch.setattr(sys, "argv", ["buyer.py", *arguments])
    options = buyer.parsed()
    loads = buyer.loads(options)
    assert [load.rate for load in loads] == rates
    assert loads[0].events == loads[0].rate * options.seconds
    assert options.profile == ["defaults", "equal"]
