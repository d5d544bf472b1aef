"""The two sides of the buyer's figure: a broker of Kafka, and a receiver of Ackline.

A side starts its server on a free port of 127.0.0.1, kills it and starts it again, and gives
Filebeat's output and Spark's source the settings of a profile.
"""

import json
import socket
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

from buyer_count import ackline
from buyer_fetch import HERE, fetched
from buyer_programs import Program, free_ports, tail, until

PROFILES = ("defaults", "equal", "recommended")
# Of the query, and partitions of the topic.
CORES = 2
TOPIC = "events"
START_S = 60.0
# Options of the JVM in Kafka's own start script.
KAFKA_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class Kafka:
    """One broker in KRaft mode, which is its own controller."""

    name = "Kafka"
    letter = "A"

    def __init__(self, directory: Path, profile: str, *, flush: bool) -> None:
        """Prepare a broker whose files are in `directory`; `flush` syncs each message."""
        self.profile = profile
        self.store = directory / "kafka"
        self._config = directory / "server.properties"
        self._port, control = free_ports(2)
        self._libraries = fetched("kafka")
        self._config.write_text(self._properties(control, flush=flush), encoding="ascii")
        self.server = Program("broker", self._java("kafka.Kafka"), directory / "broker.log")

    def _properties(self, control: int, *, flush: bool) -> str:
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{control}",
            f"listeners=PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{control}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self._port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.store}",
            f"num.partitions={CORES}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
        ]
        if flush:
            lines.append("log.flush.interval.messages=1")
        return "\n".join(lines) + "\n"

    def _java(self, name: str) -> list[str]:
        log = f"-Dlog4j2.configurationFile={HERE / 'buyer' / 'log4j2.properties'}"
        command = ["java", *KAFKA_JVM, log, "-cp", f"{self._libraries}/*", name]
        return [*command, str(self._config)] if name == "kafka.Kafka" else command

    def format(self) -> None:
        """Format its storage."""
        arguments = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self._config)]
        tool = [*self._java("kafka.tools.StorageTool"), *arguments]
        subprocess.run(tool, check=True, stdout=subprocess.DEVNULL, timeout=START_S)

    def start(self) -> int:
        """Start the broker and wait until it accepts connections; return its pid."""
        if not self.store.exists():
            self.format()
        pid = self.server.start()
        until(self._accepts, START_S, lambda: f"no broker: {tail(self.server.log)}")
        return pid

    def _accepts(self) -> bool:
        self.server.check()
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def has_events(self) -> bool:
        """Tell whether Filebeat has made the topic, so that a query can subscribe to it."""
        return (self.store / f"{TOPIC}-0").exists()

    def output(self) -> dict[str, Any]:
        """Return Filebeat's output, as `name: value`."""
        # Acknowledged by all replicas, as the figure is stated; Filebeat's own default is 1.
        settings: dict[str, Any] = {
            "output.kafka.hosts": [f"127.0.0.1:{self._port}"],
            "output.kafka.topic": TOPIC,
            "output.kafka.required_acks": -1,
            # The oldest version that brokers of Kafka 4 still speak is 2.1.
            "output.kafka.version": "2.1.0",
        }
        if self.profile == "equal":
            settings["output.kafka.compression"] = "gzip"
            settings["output.kafka.compression_level"] = 3
        if self.profile == "recommended":
            settings["output.kafka.compression"] = "lz4"
        return settings

    def source(self) -> dict[str, Any]:
        """Return the settings of the query's source."""
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{self._port}",
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        jars = sorted(map(str, fetched("connector").glob("*.jar")))
        return {"format": "kafka", "options": options, "jars": jars, "tuned": False}


class Ackline:
    """One receiver with a spool."""

    name = "Ackline"
    letter = "B"

    def __init__(self, directory: Path, profile: str, *, flush: bool) -> None:
        """Prepare a receiver; its spool is in `directory`. It always syncs, so `flush` is met."""
        del flush
        self.profile = profile
        self.store = directory / "spool"
        self._port = 0
        self.server = Program("receiver", [], directory / "receiver.log")

    def start(self) -> int:
        """Start the receiver and wait until it listens; return its pid."""
        url = f"lumberjack://127.0.0.1:{self._port}"
        self.server.command = [*ackline(), "receive", url, "--spool", str(self.store), "--json"]
        known = len(self._listening())
        pid = self.server.start()
        until(
            lambda: self._listens(known), START_S, lambda: f"no receiver: {tail(self.server.log)}"
        )
        self._port = int(urllib.parse.urlsplit(self._listening()[-1]["urls"][0]).port or 0)
        return pid

    def _listens(self, known: int) -> bool:
        self.server.check()
        return len(self._listening()) > known

    def _listening(self) -> list[dict[str, Any]]:
        if not self.server.log.exists():
            return []
        lines = self.server.log.read_text(encoding="utf-8").splitlines(keepends=True)
        records = [line for line in lines if line.startswith("{") and line.endswith("\n")]
        return [each for each in map(json.loads, records) if each.get("event") == "listening"]

    def has_events(self) -> bool:
        """Tell that a query can start: a spool is there with its receiver."""
        return True

    def output(self) -> dict[str, Any]:
        """Return Filebeat's output, as `name: value`."""
        settings: dict[str, Any] = {"output.logstash.hosts": [f"127.0.0.1:{self._port}"]}
        if self.profile == "equal":
            settings["output.logstash.compression_level"] = 3
        if self.profile == "recommended":
            settings["output.logstash.compression_level"] = 1
        return settings

    def source(self) -> dict[str, Any]:
        """Return the settings of the query's source."""
        options = {"spool": str(self.store), "consumer": "lake"}
        tuned = self.profile == "recommended"
        return {"format": "ackline", "options": options, "jars": [], "tuned": tuned}


Side = Kafka | Ackline
SIDES: dict[str, type[Kafka] | type[Ackline]] = {"A": Kafka, "B": Ackline}
