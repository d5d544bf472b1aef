"""Makes the golden spools of one on-disk format, with the release that writes that format.

    PYTHON tests/golden/make.py tests/golden/format1 [NAME ...]

PYTHON is the interpreter of a virtual environment with the writing release. The receiver of that
release runs, is killed and starts again (receiving.py); this program sends, damages files and
restores copies (makers.py). It packs each directory into NAME.tar.gz, and notes in NAME.json the
content that every later build must read from it.

A golden spool is made once, by the release that wrote the format last, and never again. NEVER run
this with a later release: that release would be compared with itself. The program is kept as the
account of how the files were made, and as the pattern for the goldens of the next format.

Payloads, positions, groups and segments are the same at every run. UUIDs, keys, ports, link names,
processes and times differ. The archive adds nothing of its own: entries are sorted, with time 0 and
owner 0, and with the modes of the files. `reserve` is left out: it holds no data.
"""

import argparse
import base64
import gzip
import io
import json
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from makers import MAKERS, Made, Range
from receiving import LUMBERJACK

from ackline import Receiver, Spool, SpoolError, __version__

FORMAT = 1
FOR_EVER_MS = 3_155_760_000_000
"""A hundred years: nothing retires while a spool is opened to be noted."""
COLUMNS = [
    "position", "received_at", "protocol", "peer", "link", "stream", "sequence", "repeat",
    "attributes", "parts", "payload", "digest",
]  # fmt: skip


def text(value: bytes | None) -> Any:
    """UTF-8 as it is, other bytes as base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def noted_row(row: dict[str, Any]) -> dict[str, Any]:
    noted = row | {
        "received_at": row["received_at"].isoformat(timespec="microseconds"),
        "attributes": dict(row["attributes"]),
        "parts": None if row["parts"] is None else [text(part) for part in row["parts"]],
        "payload": text(row["payload"]),
        "digest": row["digest"].hex(),
    }
    return {name: value for name, value in noted.items() if value is not None}


def rows(spool: Spool, end: int, lost: list[Range]) -> list[dict[str, Any]]:
    """All rows below `end`, with the lost ranges passed over."""
    found, at = [], spool.first_kept()
    for low, high in [*lost, (end, end)]:
        if min(low, end) > at:
            table = spool.read(at, min(low, end), columns=COLUMNS).to_table()
            found += [noted_row(row) for row in table.to_pylist()]
        at = high
    return found


def check(made: Made, found: list[dict[str, Any]]) -> None:
    """Compares the rows that were read with the events that were sent, before they are noted."""
    read = {row["position"]: row.get("parts") or row.get("payload") for row in found}
    sent = {
        position: [text(part) for part in one] if isinstance(one, list) else text(one)
        for position, one in made.sent.items()
    }
    assert read == sent, (read, sent)


def verify(path: Path, made: Made) -> int:
    command = [sys.executable, "-m", "ackline.cli", "spool", "verify", str(path)]
    command += ["--group"] if made.group else []
    return subprocess.run(command, capture_output=True, check=False).returncode


def stand(path: Path, made: Made) -> dict[str, Any]:
    spool = Spool(path, group=made.group)
    return {
        "first_kept": spool.first_kept(),
        "durable": spool.durable(),
        "verify": verify(path, made),
    }


def noted(path: Path, opened: Path, made: Made) -> dict[str, Any]:
    """The note of the spool in `path`; `opened` is a copy that a receiver has opened."""
    spool, after = (Spool(where, group=made.group) for where in (path, opened))
    found = rows(after, after.durable(), made.lost)
    check(made, found)
    readable = spool.durable() if made.readable is None else made.readable
    before = rows(spool, readable, [one for one in made.lost if one[1] <= readable])
    assert before == [row for row in found if row["position"] < readable]
    identity = json.loads((path / "spool.json").read_text("utf-8"))
    assert identity["format"] == FORMAT, "another release must write these"
    consumers = [
        {
            "name": one.name,
            "committed": one.committed,
            "generation": one.generation,
            "holder": one.holder
            and {name: getattr(one.holder, name) for name in one.holder.__slots__},
        }
        for one in spool.consumers()
    ]
    note = {
        "holds": made.holds,
        "written_by": __version__,
        "format": FORMAT,
        "group": made.group,
        "urls": made.urls,
        "uuid": spool.uuid,
        "formerly": identity.get("formerly", []),
        "consumers": consumers,
        "found": stand(path, made) | {"readable": readable},
        "opened": stand(opened, made),
        "lost": made.lost,
        "rows": found,
    }
    if made.quarantine is not None:
        inner = noted(path / "quarantine", opened / "quarantine", made.quarantine)
        note["quarantine"] = inner
    return note


def written(note: dict[str, Any]) -> str:
    """JSON with a line for each member and each row."""
    rows = note["rows"]
    plain = json.dumps(note | {"rows": []}, indent=1, ensure_ascii=False)
    one_each = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    if not rows:
        return plain + "\n"
    return plain.replace('"rows": []', f'"rows": [\n  {one_each}\n ]', 1) + "\n"


def packed(path: Path) -> bytes:
    """The directory as an archive that depends on names, modes and bytes alone."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for one in sorted([path, *path.rglob("*")]):
            if one.name == "reserve":
                continue
            entry = tarfile.TarInfo(str(Path("spool") / one.relative_to(path)))
            entry.mode = stat.S_IMODE(one.stat().st_mode)
            if one.is_dir():
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
                continue
            content = one.read_bytes()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), 9, mtime=0)


def make(name: str, into: Path, work: Path) -> None:
    spool, opened = work / name / "spool", work / name / "opened"
    spool.parent.mkdir()
    made = MAKERS[name](spool)
    shutil.copytree(spool, opened, ignore=shutil.ignore_patterns("lock", "reserve"))
    options: dict[str, int | str] = {
        "budget": 1 << 20, "group": made.group, "on_invalid": "quarantine",
        "retain_committed_ms": FOR_EVER_MS, "quarantine_age_ms": FOR_EVER_MS,
    }  # fmt: skip
    with Receiver([LUMBERJACK], spool=opened, options=options):
        pass
    archive = packed(spool)
    note = written(noted(spool, opened, made))
    (into / f"{name}.tar.gz").write_bytes(archive)
    (into / f"{name}.json").write_text(note, "utf-8")
    print(f"{name}: {len(archive)} bytes, {len(made.sent)} rows, noted in {len(note)} bytes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("into", type=Path, help="The folder of the format.")
    parser.add_argument("names", nargs="*", help="The goldens to make; all without one.")
    arguments = parser.parse_args()
    names = arguments.names or list(MAKERS)
    if there := [name for name in names if (arguments.into / f"{name}.tar.gz").exists()]:
        sys.exit(f"there are {', '.join(there)} already: a golden spool is made once")
    arguments.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            try:
                make(name, arguments.into, Path(work))
            except SpoolError as error:
                sys.exit(f"{name}: {error.code}: {error}")


if __name__ == "__main__":
    main()
