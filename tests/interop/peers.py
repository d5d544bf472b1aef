"""The peers that are no Python: fetched and built under target/interop, each once for its sources.

`python tests/interop/peers.py` builds all of them, as `make test-interop` does before the tests;
a test that needs one asks for it by name and finds it built.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILT = ROOT / "target" / "interop"


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    # Standard output is left to the tests.
    subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=os.environ | environment, check=True, stdout=sys.stderr, timeout=900,
    )  # fmt: skip


def golumber(into: Path) -> None:
    """go-lumber v0.2.0: the client of Beats and the server of Filebeat."""
    build = ("go", "build", "-mod=readonly", "-o", into / "peer", ".")
    run(*build, cwd=HERE / "golumber", GOTOOLCHAIN="local")


def ferro(into: Path) -> None:
    """ferro-lumberjack 1.0.0: client and server."""
    run("cargo", "build", "--locked", "--quiet", cwd=HERE / "ferro", CARGO_TARGET_DIR=str(into))
    shutil.copy(into / "debug" / "ackline-interop-ferro", into / "peer")


def node(into: Path) -> None:
    """npm lumberjack-protocol 1.0.7: a client of version 1."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "node" / name, into / name)
    run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", cwd=into)


def camel(into: Path) -> None:
    """Apache Camel's server: its libraries; Receive.java is run from source."""
    maven = ("mvn", "-q", "-B", "-f", HERE / "camel" / "pom.xml")
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={into / 'lib'}")
    run(*maven, f"-Dmaven.repo.local={BUILT / 'm2'}", *goal, cwd=into)


PEERS: dict[str, Callable[[Path], None]] = {
    "golumber": golumber, "ferro": ferro, "node": node, "camel": camel,
}  # fmt: skip
EXAMPLES = ("micromsg_proxy", "publish_and_subscribe", "rpc_and_streams", "send_and_subscribe")
"""Programs of crates/ackline that tests run."""


def sources(name: str) -> str:
    """A digest of a peer's sources."""
    digest = hashlib.sha256()
    for path in sorted((HERE / name).rglob("*")):
        if path.is_file() and "target" not in path.parts:
            digest.update(f"{path.relative_to(HERE)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def built(name: str) -> Path:
    """The folder of a peer, which is built if its sources have changed since."""
    into = BUILT / name
    stamp = into / ".stamp"
    made_of = sources(name)
    if not stamp.exists() or stamp.read_text("ascii") != made_of:
        into.mkdir(parents=True, exist_ok=True)
        PEERS[name](into)
        stamp.write_text(made_of, "ascii")
    return into


@cache
def rust_example(name: str) -> Path:
    """An example of crates/ackline, built as the tests of Rust are."""
    done = subprocess.run(
        ["cargo", "build", "--locked", "--profile", "checked", "--workspace", "--example", name,
         "--message-format", "json-render-diagnostics"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=1800,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    made = {line["target"]["name"]: line for line in lines if line.get("executable")}
    return Path(made[name]["executable"])


def golumber_command() -> list[str]:
    return [str(built("golumber") / "peer")]


def ferro_command() -> list[str]:
    return [str(built("ferro") / "peer")]


def node_command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of the client of npm."""
    modules = {"NODE_PATH": str(built("node") / "node_modules"), "NODE_NO_WARNINGS": "1"}
    return ["node", str(HERE / "node" / "send.js"), *arguments], os.environ | modules


def camel_command(*arguments: str) -> list[str]:
    libraries = built("camel") / "lib" / "*"
    return ["java", "-cp", str(libraries), str(HERE / "camel" / "Receive.java"), *arguments]


def build(name: str) -> None:
    print(f"== peer: {name}", file=sys.stderr)
    built(name)


if __name__ == "__main__":
    # Downloads take most of the time: all peers at once.
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(build, each) for each in PEERS]
        for example in EXAMPLES:
            rust_example(example)
        for each in running:
            each.result()
