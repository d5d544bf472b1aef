"""Runs Lumberjack's conformance vectors against `ackline.sansio.lumberjack`."""

from typing import Any

from vectors_common import (
    DESCRIPTION,
    Seen,
    VectorFailure,
    cut_positions,
    fail_unless,
    known,
    matches,
    play_at_every_cut,
    to_bytes,
)

from ackline.exceptions import ProtocolError, UsageError
from ackline.sansio import lumberjack

LIMITS = {
    "window": "max_window_events",
    "json": "max_json_bytes",
    "data": "max_data_bytes",
    "compressed": "max_compressed_bytes",
    "inflated": "max_inflated_bytes",
    "pairs": "max_pairs",
    "field": "max_field_bytes",
}
READER_TIMERS = {
    "keepalive_ms",
    "tail_idle_ms",
    "stall_timeout_ms",
    "idle_timeout_ms",
    "first_byte_timeout_ms",
}
WRITER_OPTIONS = {
    "version",
    "max_in_flight",
    "max_in_flight_events",
    "max_in_flight_bytes",
    "slow_start",
    "max_window",
    "accept_count_acks",
    "read_timeout_ms",
    "progress_timeout_ms",
}


def frame_of(value: dict[str, Any], *, with_version: bool = True) -> dict[str, Any]:
    """A frame of the vectors as `lumberjack.decode` gives it."""
    kinds = {
        "window": {"window_size"},
        "ack": {"sequence_number"},
        "json": {"sequence_number", "payload"},
        "data": {"sequence_number", "pairs"},
        "compressed": {"frames"},
    }
    if value.get("type") not in kinds:
        raise VectorFailure(f"frame not understood: {value}")
    head = {"type", "version"} if with_version else {"type"}
    known(value, kinds[value["type"]] | head)
    frame = dict(value)
    if "payload" in frame:
        frame["payload"] = to_bytes(frame["payload"])
    if "pairs" in frame:
        frame["pairs"] = [(to_bytes(key), to_bytes(pair)) for key, pair in frame["pairs"]]
    if "frames" in frame:
        frame["frames"] = [frame_of(inner) for inner in frame["frames"]]
    return frame


def limits_of(limits: dict[str, int]) -> dict[str, int]:
    known(limits, set(LIMITS))
    return {LIMITS[name]: value for name, value in limits.items()}


def run_frame_vector(vector: dict[str, Any]) -> int:
    """Runs one vector of `frames.json`; returns at how many places its bytes were cut."""
    known(vector, DESCRIPTION | {"context", "hex", "frames", "error", "canonical"})
    context = vector["context"]
    known(context, {"unit", "from", "limits"})
    fail_unless(context["unit"] == "frame", "unit frame", context["unit"])
    data = to_bytes(vector["hex"])
    limits = limits_of(context.get("limits", {}))
    if "error" in vector:
        try:
            came: object = lumberjack.decode(data, context["from"], limits)
        except ProtocolError as error:
            came = error.code.removeprefix("lumberjack.")
        fail_unless(came == vector["error"], vector["error"], came)
        return 0
    frames = [frame_of(frame) for frame in vector["frames"]]
    came_frames, consumed = lumberjack.decode(data, context["from"], limits)
    fail_unless(came_frames == frames, frames, came_frames)
    fail_unless(consumed == len(data), f"{len(data)} bytes consumed", consumed)
    if vector["canonical"]:
        encoded = lumberjack.encode(frames)
        fail_unless(encoded == data, data.hex(), encoded.hex())
    cuts = cut_positions(len(data))
    for cut in cuts:
        head, taken = lumberjack.decode(data[:cut], context["from"], limits)
        rest, left = lumberjack.decode(data[taken:], context["from"], limits)
        fail_unless(taken <= cut and head + rest == frames, f"frames cut at {cut}", head)
        fail_unless(taken + left == len(data), f"all bytes when cut at {cut}", taken + left)
    return len(cuts)


class Endpoint:
    """One machine on a virtual clock."""

    def __init__(self, role: str, config: dict[str, Any]) -> None:
        self.role = role
        self.now = 0
        self.over = False
        self.needs_room = False
        self.seen = Seen()
        self.machine: lumberjack.Reader | lumberjack.Writer
        if role == "reader":
            known(config, READER_TIMERS | {"no_window", "limits"})
            options = {name: value for name, value in config.items() if name != "limits"}
            self.machine = lumberjack.Reader(options | limits_of(config.get("limits", {})))
        elif role == "writer":
            self.machine = lumberjack.Writer(writer_options(config))
        else:
            raise VectorFailure(f"role not understood: {role}")
        self.receive(b"")  # the machine's time begins with its first call

    def receive(self, data: bytes) -> None:
        while not self.over:
            try:
                need, _ = self.machine.receive(self.now, data)
            except ProtocolError as error:
                self.ended(error)
                return
            data = b""
            self.needs_room = need == "room"
            took = self.take_events()
            if need == "input" or (need == "room" and not took):
                return
            self.take_output()

    def eof(self) -> None:
        try:
            self.machine.receive_eof(self.now)
        except ProtocolError as error:
            self.ended(error)

    def advance(self, to_ms: int) -> None:
        while not self.over:
            due = self.machine.poll_timeout()
            if due is None or due > to_ms:
                break
            self.now = max(self.now, due)
            try:
                self.machine.handle_timeout(self.now)
            except ProtocolError as error:
                self.ended(error)
            self.take_events()
            self.take_output()
        self.now = to_ms

    def call(self, call: dict[str, Any]) -> None:
        arguments = {"ack": {"window"}, "send_window": {"records"}}.get(call["verb"], set())
        known(call, {"verb"} | arguments)
        machine = self.machine
        try:
            match machine, call["verb"]:
                case lumberjack.Reader(), "ack":
                    machine.ack(self.now, call["window"])
                case lumberjack.Reader(), "stop":
                    machine.stop(self.now)
                case lumberjack.Writer(), "send_window":
                    records = [record_of(one) for one in call["records"]]
                    self.seen.returns = machine.send_window(self.now, records)
                case lumberjack.Writer(), "finish":
                    machine.finish(self.now)
                case lumberjack.Writer(), "unacknowledged":
                    self.seen.returns = machine.unacknowledged
                case lumberjack.Writer(), "window_size":
                    self.seen.returns = machine.window_size
                case _:
                    raise VectorFailure(f"verb not understood: {call['verb']}")
        except UsageError as error:
            self.seen.refused = error.code
        if self.needs_room:
            self.receive(b"")

    def ended(self, error: ProtocolError) -> None:
        self.over = True
        self.seen.error = error.code.removeprefix("lumberjack.")

    def take_events(self) -> bool:
        took = False
        while (event := self.machine.poll_event()) is not None:
            took = True
            self.seen.events.append(event_of(event))
        return took

    def take_output(self) -> None:
        while data := self.machine.poll_transmit(self.now):
            self.seen.transmit += data
        if not self.over and self.machine.lifecycle != "open":
            self.over = True
            self.seen.closed = True


def writer_options(config: dict[str, Any]) -> dict[str, Any]:
    known(config, WRITER_OPTIONS | {"compression", "sequence", "next_sequence_number"})
    options = {name: config[name] for name in WRITER_OPTIONS & config.keys()}
    if config.get("compression") is False:
        options["compression"] = None
    elif "compression" in config:
        options["compression"] = 3
    sequence = config.get("sequence", "per_window")
    if sequence == "cumulative":
        options["next_sequence_number"] = config.get("next_sequence_number", 1)
    elif sequence != "per_window":
        raise VectorFailure(f"sequence not understood: {sequence}")
    return options


def record_of(record: dict[str, Any]) -> bytes | list[tuple[bytes, bytes]]:
    if "payload" in record:
        known(record, {"payload"})
        return to_bytes(record["payload"])
    known(record, {"pairs"})
    return [(to_bytes(key), to_bytes(value)) for key, value in record["pairs"]]


def event_of(event: lumberjack.Window | tuple[str, int, int]) -> dict[str, Any]:
    if isinstance(event, tuple):
        kind, window, first = event
        members = {"event": kind, "window": window}
        return members | ({"from": first} if kind == "unacknowledged" else {})
    records = [
        {"type": "json", "sequence_number": sequence, "payload": payload}
        if isinstance(payload, bytes)
        else {"type": "data", "sequence_number": sequence, "pairs": payload}
        for sequence, payload in event.records
    ]
    return {
        "event": "window",
        "window": event.window,
        "version": event.version,
        "window_size": event.window_size,
        "records": records,
    }


def expected_event(event: dict[str, Any]) -> dict[str, Any]:
    names = {
        "window": {"window", "version", "window_size", "records"},
        "acknowledged": {"window"},
        "unacknowledged": {"window", "from"},
    }
    if event.get("event") not in names:
        raise VectorFailure(f"event not understood: {event}")
    known(event, names[event["event"]] | {"event"})
    if "records" not in event:
        return event
    return event | {"records": [frame_of(one, with_version=False) for one in event["records"]]}


def check(endpoint: Endpoint, expected: dict[str, Any]) -> None:
    seen = endpoint.seen
    if "transmit_frames" in expected:
        frames, consumed = lumberjack.decode(seen.transmit, endpoint.role, {})
        fail_unless(consumed == len(seen.transmit), "whole frames", seen.transmit.hex())
        wanted = [frame_of(frame) for frame in expected["transmit_frames"]]
        fail_unless(matches(wanted, frames), wanted, frames)
    else:
        wanted_bytes = to_bytes(expected.get("transmit", ""))
        fail_unless(
            seen.transmit == wanted_bytes,
            f"transmit {wanted_bytes.hex()}",
            f"transmit {seen.transmit.hex()}",
        )
    events = [expected_event(event) for event in expected.get("events", [])]
    fail_unless(matches(events, seen.events), f"events {events}", f"events {seen.events}")
    for name in ("returns", "refused", "error"):
        wanted_value, came = expected.get(name), getattr(seen, name)
        if name == "returns" and name not in expected:
            continue  # the result of a call is compared where a vector asks
        fail_unless(wanted_value == came, f"{name} {wanted_value}", f"{name} {came}")
    closed = bool(expected.get("closed", False))
    fail_unless(closed == seen.closed, f"closed {closed}", f"closed {seen.closed}")


def run_conversation(conversation: dict[str, Any]) -> int:
    """Runs one conversation in every cut; returns how many there were."""
    return play_at_every_cut(conversation, Endpoint, check)
