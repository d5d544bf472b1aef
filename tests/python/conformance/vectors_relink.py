"""Runs Relink's conformance vectors against `ackline.sansio.relink`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vectors_common import (
    DESCRIPTION,
    VectorFailure,
    cut_positions,
    fail_unless,
    known,
    matches,
    shorten,
    to_bytes,
)

from ackline.exceptions import ProtocolError, UsageError
from ackline.sansio import relink

PARAMETERS = {
    "connector_channel_id_size",
    "listener_channel_id_size",
    "connector_transactions",
    "listener_transactions",
}
LIMITS = {
    "channel_id_count": "max_channel_ids",
    "message_length": "max_message_parts",
    "payload_size": "max_part_bytes",
    "message_size": "max_message_bytes",
    "multicast_size": "max_multicast_bytes",
}
LINK_OPTIONS = PARAMETERS | {
    "send_window",
    "receive_window",
    "ack_window",
    "ack_delay_ms",
    "ping_after_ms",
    "pong_timeout_ms",
}
OTHER_OPTIONS = {
    "start",
    "endpoint_name",
    "require_old_link_id",
    "epoch",
    "next_link_id",
    "endpoints",
    "handshake_timeout_ms",
    "channels",
    "limits",
}
CHANNEL_FRAMES = {
    "channel_operation": {"operation"},
    "channel_acknowledgement": {"acknowledgement"},
    "sequence_operation": {"operation", "sequence_number"},
    "sequence_acknowledgement": {"acknowledgement", "sequence_number"},
    "message": {"payload"},
}
OTHER_FRAMES: dict[str, set[str]] = {
    "version": {"version"},
    "ident": {"epoch", "link_id"},
    "endpoint": {"endpoint_name", "require_old_link_id", "old_epoch", "old_link_id"} | PARAMETERS,
    "nop": set(),
    "ping": set(),
    "pong": set(),
    "resume": set(),
    "shutdown": set(),
}
EVENTS = {
    "link_established": {"epoch", "link_id", "resumed"},
    "link_lost": set(),
    "link_closed": set(),
    "resumed": set(),
    "message": {"channel", "sequence_number", "payload"},
    "acknowledged": {"channel", "acknowledgement", "through"},
    "decided": {"channel", "operation", "through"},
    "closing": {"channel"},
    "closed": {"channel", "unacknowledged"},
    "peer_shutdown": set(),
    "pong": set(),
}
VERBS = {
    "connect": {"connection"},
    "transport_lost": set(),
    "transport_resumed": set(),
    "send": {"channels", "payload"},
    "consume": {"channel", "through"},
    "notify_received": {"channel"},
    "commit": {"channel", "through"},
    "rollback": {"channel", "through"},
    "committed": {"channel", "through"},
    "uncommitted": {"channel", "through"},
    "close_channel": {"channel"},
    "ping": set(),
    "shutdown": set(),
}
STIMULI = {"call", "recv", "advance_ms", "eof"}
EXPECTATIONS = {"transmit", "events", "refused", "error", "closed"}


def frame_of(value: dict[str, Any]) -> dict[str, Any]:
    """A frame of the vectors as `relink.decode` gives it."""
    frame = dict(value)
    kind = str(value.get("type"))
    if kind in CHANNEL_FRAMES:
        known(value, CHANNEL_FRAMES[kind] | {"type", "multicast", "channel_ids"})
        frame["channel_ids"] = [to_bytes(one) for one in value["channel_ids"]]
        if "payload" in value:
            frame["payload"] = [to_bytes(part) for part in value["payload"]]
        return frame
    fail_unless(kind in OTHER_FRAMES, "a frame that is understood", value)
    known(value, OTHER_FRAMES[kind] | {"type"})
    return frame


def limits_of(limits: dict[str, int]) -> dict[str, int]:
    known(limits, set(LIMITS))
    return {LIMITS[name]: value for name, value in limits.items()}


def run_frame_vector(vector: dict[str, Any]) -> int:
    """Runs one vector of `frames.json`; returns at how many places its bytes were cut."""
    known(vector, DESCRIPTION | {"context", "hex", "frames", "error", "canonical"})
    context = vector["context"]
    known(context, {"unit", "from", "limits"} | PARAMETERS)
    options = {name: context[name] for name in PARAMETERS & context.keys()}
    options |= limits_of(context.get("limits", {}))
    data = to_bytes(vector["hex"])

    def decode(some: bytes) -> tuple[list[dict[str, Any]], int]:
        return relink.decode(some, context["unit"], context["from"], options)

    if "error" in vector:
        try:
            came: object = decode(data)
        except ProtocolError as error:
            came = error.code.removeprefix("relink.")
        fail_unless(came == vector["error"], vector["error"], came)
        return 0
    frames = [frame_of(frame) for frame in vector["frames"]]
    came_frames, consumed = decode(data)
    fail_unless(came_frames == frames, frames, came_frames)
    fail_unless(consumed == len(data), f"{len(data)} bytes consumed", consumed)
    if vector["canonical"]:
        encoded = relink.encode(frames)
        fail_unless(encoded == data, data.hex(), encoded.hex())
    cuts = cut_positions(len(data))
    for cut in cuts:
        head, taken = decode(data[:cut])
        rest, left = decode(data[taken:])
        fail_unless(taken <= cut and head + rest == frames, f"frames cut at {cut}", head)
        fail_unless(taken + left == len(data), f"all bytes when cut at {cut}", taken + left)
    return len(cuts)


@dataclass
class Seen:
    """Everything since the last stimulus, or the expected part of it."""

    transmit: dict[int, bytes] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    refused: str | None = None
    ends: dict[int, str] = field(default_factory=dict)

    def emitted(self, connection: int, data: bytes) -> None:
        if data:
            self.transmit[connection] = self.transmit.get(connection, b"") + data


@dataclass
class Transport:
    """A connection of the endpoint: its handshake, then the link's packets."""

    handshake: relink.Handshake | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False


class Endpoint:
    """A connector or listener: its transports and its link, on a virtual clock."""

    def __init__(self, role: str, config: dict[str, Any]) -> None:
        known(config, LINK_OPTIONS | OTHER_OPTIONS)
        fail_unless(role in {"connector", "listener"}, "a role that is understood", role)
        self.role = role
        self.config = config
        self.now = 0
        self.seen = Seen()
        self.transports: dict[int, Transport] = {}
        self.carrier = 1
        self.link: relink.Link | None = None
        self.binder: relink.Binder | None = None
        if role == "listener" and "endpoints" in config:
            endpoints = {
                one["endpoint_name"]: {name: one[name] for name in PARAMETERS}
                for one in config["endpoints"]
            }
            next_link_id = config.get("next_link_id", 1)
            self.binder = relink.Binder(config["epoch"], endpoints, next_link_id)
        if config["start"] == "established":
            self.transports[1] = Transport()
            self.link = self.make_link(1, 1, config)
            self.link.attach(self.now, resumed=False)
        else:
            fail_unless(config["start"] == "handshake", "a start", config["start"])

    def make_link(self, epoch: int, link_id: int, parameters: dict[str, Any]) -> relink.Link:
        options: dict[str, Any] = {"role": self.role}
        options |= {name: self.config[name] for name in LINK_OPTIONS & self.config.keys()}
        options |= {name: parameters[name] for name in PARAMETERS}
        options |= limits_of(self.config.get("limits", {}))
        options["channels"] = [
            (one["side"], to_bytes(one["channel"]), one["next_sequence_number"])
            for one in self.config.get("channels", [])
        ]
        return relink.Link(options, epoch, link_id)

    def is_alive(self) -> bool:
        return self.link is not None and self.link.state not in {"closed", "lost"}

    def connect(self, connection: int) -> None:
        options = {
            name: self.config[name] for name in {"handshake_timeout_ms"} & self.config.keys()
        }
        if self.role == "listener":
            handshake = relink.Handshake.listener(self.now, options)
        else:
            names = (PARAMETERS | {"require_old_link_id"}) & self.config.keys()
            options |= {name: self.config[name] for name in names}
            old = self.link.key if self.link is not None and self.is_alive() else None
            name = self.config["endpoint_name"]
            handshake = relink.Handshake.connector(self.now, name, options, old)
        self.transports[connection] = Transport(handshake)

    def end(self, connection: int, why: str) -> None:
        self.transports[connection].is_over = True
        self.seen.ends[connection] = why

    def receive(self, connection: int, data: bytes) -> None:
        transport = self.transports[connection]
        while not transport.is_over:
            try:
                if transport.handshake is not None:
                    again, data = self.shake_hands(connection, transport.handshake, data)
                elif self.link is not None and connection == self.carrier:
                    need, _ = self.link.receive(self.now, data)
                    again, data = need != "input", b""
                    self.take_events()
                else:
                    return
            except ProtocolError as error:
                self.end(connection, error.code.removeprefix("relink."))
                return
            if not again:
                return

    def shake_hands(
        self, connection: int, handshake: relink.Handshake, data: bytes
    ) -> tuple[bool, bytes]:
        """Goes on with a handshake; returns whether there is more to do, and the input for it."""
        need, _ = handshake.receive(self.now, data)
        transport = self.transports[connection]
        while (event := handshake.poll_event()) is not None:
            if event["event"] == "requested":
                self.answer(transport, handshake, event)
            elif event["event"] == "link_lost":
                if self.link is not None:
                    self.link.lose(self.now)
                self.end_after_output(connection, handshake)
            else:
                self.seen.emitted(connection, handshake.poll_transmit(self.now))
                fail_unless(handshake.lifecycle == "handover", "handover", handshake.lifecycle)
                transport.handshake = None
                self.established(connection, event)
                return True, handshake.leftover()
        if handshake.lifecycle == "draining":
            self.end_after_output(connection, handshake)
        return need == "room", b""

    def end_after_output(self, connection: int, handshake: relink.Handshake) -> None:
        self.seen.emitted(connection, handshake.poll_transmit(self.now))
        self.take_events()
        self.end(connection, "closed")

    def answer(
        self, transport: Transport, handshake: relink.Handshake, asked: dict[str, Any]
    ) -> None:
        if self.binder is None:
            raise VectorFailure("a request without endpoints")
        transport.asked = asked
        try:
            _, epoch, link_id = self.binder.decide(asked)
        except ProtocolError as error:
            handshake.refuse(self.now, error.code)
            return
        handshake.accept(self.now, epoch, link_id)

    def established(self, connection: int, event: dict[str, Any]) -> None:
        epoch, link_id, resumed = event["epoch"], event["link_id"], event["resumed"]
        old = self.transports.get(self.carrier)
        if not resumed:
            if self.link is not None and self.is_alive():
                self.link.lose(self.now)
                self.take_events()
            parameters = self.transports[connection].asked or self.config
            self.link = self.make_link(epoch, link_id, parameters)
        elif old is not None and connection != self.carrier and not old.is_over:
            self.end(self.carrier, "closed")
        self.carrier = connection
        members = {"epoch": epoch, "link_id": link_id, "resumed": resumed}
        self.seen.events.append({"event": "link_established"} | members)
        if self.link is None:
            raise VectorFailure("a link that is resumed is not there")
        if resumed:
            self.link.detach(self.now)
        self.link.attach(self.now, resumed=resumed)

    def eof(self, connection: int) -> None:
        if self.link is not None and connection == self.carrier:
            self.link.receive_eof(self.now)
        if not self.transports[connection].is_over:
            self.end(connection, "closed")

    def call(self, connection: int, call: dict[str, Any]) -> None:
        verb = call["verb"]
        fail_unless(verb in VERBS, "a verb that is understood", call)
        known(call, {"verb"} | VERBS[verb])
        if verb == "connect":
            self.connect(call.get("connection", connection))
            return
        if self.link is None:
            self.seen.refused = "not_connected"
            return
        if verb in {"transport_lost", "transport_resumed"}:
            self.link.detach(self.now)
            self.transports[self.carrier] = Transport(is_over=verb == "transport_lost")
            if verb == "transport_resumed":
                self.link.attach(self.now, resumed=True)
            return
        try:
            self.link_verb(self.link, verb, call)
        except UsageError as error:
            self.seen.refused = error.code
        self.receive(self.carrier, b"")

    def link_verb(self, link: relink.Link, verb: str, call: dict[str, Any]) -> None:
        if verb == "send":
            channels = [to_bytes(one) for one in call["channels"]]
            link.send(self.now, channels, [to_bytes(part) for part in call["payload"]])
        elif verb == "consume":
            link.consume(self.now, to_bytes(call["channel"]), call["through"])
        elif verb in {"ping", "shutdown"}:
            getattr(link, verb)(self.now)
        elif verb in {"notify_received", "close_channel"}:
            getattr(link, verb)(self.now, to_bytes(call["channel"]))
        else:
            getattr(link, verb)(self.now, to_bytes(call["channel"]), call.get("through"))

    def timers(self) -> dict[int, int]:
        """When each connection's next timer is due."""
        due: dict[int, int] = {}
        for connection, transport in self.transports.items():
            if transport.is_over:
                continue
            machine: relink.Handshake | relink.Link | None = transport.handshake
            if machine is None and connection == self.carrier:
                machine = self.link
            at = machine.poll_timeout() if machine is not None else None
            if at is not None:
                due[connection] = at
        return due

    def advance(self, to_ms: int) -> None:
        while due := {name: at for name, at in self.timers().items() if at <= to_ms}:
            connection = min(due, key=due.__getitem__)
            self.now = max(self.now, due[connection])
            machine = self.transports[connection].handshake or self.link
            try:
                if machine is not None:
                    machine.handle_timeout(self.now)
            except ProtocolError as error:
                self.end(connection, error.code.removeprefix("relink."))
            self.take_events()
            self.take_output()
        self.now = to_ms

    def take_events(self) -> None:
        while self.link is not None and (event := self.link.poll_event()) is not None:
            if event["event"] == "link_closed" and self.binder is not None:
                self.binder.forget(self.link.key[1])
            self.seen.events.append(event)

    def take_output(self) -> None:
        for connection, transport in self.transports.items():
            if transport.handshake is not None:
                self.drain(connection, transport.handshake)
            elif self.link is not None and connection == self.carrier:
                self.drain(connection, self.link)
        self.take_events()
        carrier = self.transports.get(self.carrier)
        if carrier is None or carrier.is_over or carrier.handshake is not None:
            return
        if self.link is not None and self.link.lifecycle == "draining":
            self.end(self.carrier, "closed")

    def drain(self, connection: int, machine: relink.Handshake | relink.Link) -> None:
        while data := machine.poll_transmit(self.now):
            self.seen.emitted(connection, data)


@dataclass
class Step:
    """A stimulus and the expected events after it."""

    stimulus: dict[str, Any]
    connection: int
    expected: Seen = field(default_factory=Seen)


def connection_of(step: dict[str, Any]) -> int:
    connection = step.get("connection", 1)
    fail_unless(isinstance(connection, int) and connection > 0, "a connection", step)
    return int(connection)


def parse(steps: list[dict[str, Any]]) -> list[Step]:
    parsed: list[Step] = []
    for step in steps:
        known(step, STIMULI | EXPECTATIONS | {"hold", "connection", "note"})
        if step.keys() & STIMULI:
            fail_unless(len(step.keys() & STIMULI) == 1, "one stimulus", step)
            fail_unless(not step.keys() & EXPECTATIONS, "nothing expected beside it", step)
            parsed.append(Step(step, connection_of(step)))
            continue
        fail_unless(parsed and "hold" not in step, "a stimulus before", step)
        expected, connection = parsed[-1].expected, connection_of(step)
        expected.emitted(connection, to_bytes(step.get("transmit", "")))
        expected.events += [expected_event(event) for event in step.get("events", [])]
        expected.refused = step.get("refused", expected.refused)
        if "error" in step:
            expected.ends[connection] = step["error"]
        elif step.get("closed"):
            expected.ends[connection] = "closed"
    return parsed


def expected_event(event: dict[str, Any]) -> dict[str, Any]:
    fail_unless(event.get("event") in EVENTS, "an event that is understood", event)
    known(event, EVENTS[event["event"]] | {"event"})
    plain = dict(event)
    if "channel" in event:
        plain["channel"] = to_bytes(event["channel"])
    if "payload" in event:
        plain["payload"] = [to_bytes(part) for part in event["payload"]]
    return plain


def check(expected: Seen, came: Seen) -> None:
    fail_unless(
        expected.transmit == came.transmit,
        f"transmit { {one: data.hex() for one, data in expected.transmit.items()} }",
        f"transmit { {one: data.hex() for one, data in came.transmit.items()} }",
    )
    events, came_events = expected.events, came.events
    fail_unless(matches(events, came_events), f"events {events}", f"events {came_events}")
    fail_unless(expected.refused == came.refused, f"refused {expected.refused}", came.refused)
    fail_unless(expected.ends == came.ends, f"ends {expected.ends}", f"ends {came.ends}")


def play(conversation: dict[str, Any], steps: list[Step], deliver: dict[int, list[bytes]]) -> None:
    """Plays a conversation; `deliver` says how the bytes of a `recv` step are cut."""
    endpoint = Endpoint(conversation["role"], conversation["config"])
    for index, step in enumerate(steps):
        stimulus = step.stimulus
        if "call" in stimulus:
            endpoint.call(step.connection, stimulus["call"])
        elif "recv" in stimulus:
            for piece in deliver.get(index) or [to_bytes(stimulus["recv"])]:
                endpoint.receive(step.connection, piece)
        elif "advance_ms" in stimulus:
            endpoint.advance(endpoint.now + stimulus["advance_ms"])
        else:
            endpoint.eof(step.connection)
        endpoint.take_events()
        if not stimulus.get("hold"):
            endpoint.take_output()
        try:
            check(step.expected, endpoint.seen)
        except VectorFailure as failure:
            raise VectorFailure(f"step {index} {shorten(stimulus)}: {failure}") from None
        endpoint.seen = Seen()


def deliveries(steps: list[Step]) -> Iterator[dict[int, list[bytes]]]:
    """Every cut of every `recv`, and all of them byte by byte."""
    received = {
        index: to_bytes(step.stimulus["recv"])
        for index, step in enumerate(steps)
        if "recv" in step.stimulus
    }
    for index, data in received.items():
        for cut in cut_positions(len(data)):
            yield {index: [data[:cut], data[cut:]]}
    if any(len(data) > 1 for data in received.values()):
        yield {
            index: [data[at : at + 1] for at in range(len(data))]
            for index, data in received.items()
            if data
        }


def run_conversation(conversation: dict[str, Any]) -> int:
    """Runs one conversation in every cut; returns how many there were."""
    known(conversation, DESCRIPTION | {"role", "config", "steps"})
    steps = parse(conversation["steps"])
    play(conversation, steps, {})
    splits = 0
    for delivery in deliveries(steps):
        splits += 1
        try:
            play(conversation, steps, delivery)
        except VectorFailure as failure:
            sizes = {index: [len(piece) for piece in cut][:4] for index, cut in delivery.items()}
            raise VectorFailure(f"cut {sizes}: {failure}") from None
    return splits
