"""Runs bpmux's conformance vectors against `ackline.sansio.bpmux`."""

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
from ackline.sansio import bpmux

ID_VERBS = {"request", "respond", "cancel_request", "close_response", "ping_request"}
TARGET_VERBS = {"send", "close", "cancel", "grant_credit", "ping", "credit"}


def frame_of(value: dict[str, Any]) -> dict[str, Any]:
    """A chunk of the vectors as `bpmux.decode` gives it."""
    frame = dict(value)
    if "payload" in frame:
        frame["payload"] = to_bytes(frame["payload"])
    return frame


def limits_of(limits: dict[str, int]) -> dict[str, int]:
    known(limits, {"payload"})
    return {"max_payload_bytes": limits["payload"]} if limits else {}


def run_frame_vector(vector: dict[str, Any]) -> int:
    """Runs one vector of `frames.json`; returns at how many places its bytes were cut."""
    known(vector, DESCRIPTION | {"context", "hex", "frames", "error", "canonical"})
    context = vector["context"]
    known(context, {"unit", "limits"})
    fail_unless(context["unit"] == "chunk", "unit chunk", context["unit"])
    data = to_bytes(vector["hex"])
    limits = limits_of(context.get("limits", {}))
    if "error" in vector:
        try:
            came: object = bpmux.decode(data, limits)
        except ProtocolError as error:
            came = error.code.removeprefix("bpmux.")
        fail_unless(came == vector["error"], vector["error"], came)
        return 0
    frames = [frame_of(frame) for frame in vector["frames"]]
    came_frames, consumed = bpmux.decode(data, limits)
    fail_unless(came_frames == frames, frames, came_frames)
    fail_unless(consumed == len(data), f"{len(data)} bytes consumed", consumed)
    if vector["canonical"]:
        encoded = bpmux.encode(frames)
        fail_unless(encoded == data, data.hex(), encoded.hex())
    cuts = cut_positions(len(data))
    for cut in cuts:
        head, taken = bpmux.decode(data[:cut], limits)
        rest, left = bpmux.decode(data[taken:], limits)
        fail_unless(taken <= cut and head + rest == frames, f"frames cut at {cut}", head)
        fail_unless(taken + left == len(data), f"all bytes when cut at {cut}", taken + left)
    return len(cuts)


def target_of(value: object) -> bpmux.Target:
    match value:
        case "top":
            return "top"
        case {"own": int(own), **others} if not others:
            return ("own", own)
        case {"peer": int(peer), **others} if not others:
            return ("peer", peer)
    raise VectorFailure(f"target not understood: {value}")


class Endpoint:
    """One machine on a virtual clock."""

    def __init__(self, role: str, config: dict[str, Any]) -> None:
        fail_unless(role == "endpoint", "role endpoint", role)
        known(config, {"chunk_size", "limits"})
        options = {name: value for name, value in config.items() if name != "limits"}
        self.now = 0
        self.over = False
        self.seen = Seen()
        self.machine = bpmux.Connection(0, options | limits_of(config.get("limits", {})))

    def receive(self, data: bytes) -> None:
        while not self.over:
            try:
                need, _ = self.machine.receive(self.now, data)
            except ProtocolError as error:
                self.over = True
                self.seen.error = error.code.removeprefix("bpmux.")
                return
            data = b""
            took = self.take_events()
            if need == "input" or (need == "room" and not took):
                return

    def eof(self) -> None:
        self.machine.receive_eof(self.now)

    def advance(self, to_ms: int) -> None:
        while (due := self.machine.poll_timeout()) is not None and due <= to_ms:
            self.now = max(self.now, due)
            self.machine.handle_timeout(self.now)
        self.now = to_ms

    def call(self, call: dict[str, Any]) -> None:
        try:
            self.seen.returns = self.called(call)
        except UsageError as error:
            self.seen.refused = error.code

    def called(self, call: dict[str, Any]) -> object:
        verb = call["verb"]
        payload = [to_bytes(call["payload"])] if "payload" in call else []
        if "id" in call:
            known(call, {"verb", "id", "payload"})
            if verb.startswith("open_"):
                return self.machine.open(verb.removeprefix("open_"), call["id"], *payload)
            fail_unless(verb in ID_VERBS, "a verb for an id", verb)
            return getattr(self.machine, verb)(call["id"], *payload)
        known(call, {"verb", "target", "payload", "amount"})
        fail_unless(verb in TARGET_VERBS, "a verb for a target", verb)
        amount = [call["amount"]] if "amount" in call else []
        return getattr(self.machine, verb)(target_of(call["target"]), *payload, *amount)

    def take_events(self) -> bool:
        took = False
        while (event := self.machine.poll_event()) is not None:
            took = True
            if event["event"] not in {"room", "open", "response_sent"}:
                self.seen.events.append(event)
        return took

    def take_output(self) -> None:
        while data := self.machine.poll_transmit(self.now):
            self.seen.transmit += data
        self.take_events()
        if not self.over and self.machine.lifecycle != "open":
            self.over = True
            self.seen.closed = True


def expected_event(event: dict[str, Any]) -> dict[str, Any]:
    expected = dict(event)
    if "payload" in event:
        expected["payload"] = to_bytes(event["payload"])
    if "target" in event:
        expected["target"] = target_of(event["target"])
    return expected


def check(endpoint: Endpoint, expected: dict[str, Any]) -> None:
    seen = endpoint.seen
    if "transmit_frames" in expected:
        frames, consumed = bpmux.decode(seen.transmit)
        fail_unless(consumed == len(seen.transmit), "whole chunks", seen.transmit.hex())
        wanted = [frame_of(frame) for frame in expected["transmit_frames"]]
        fail_unless(matches(wanted, frames), wanted, frames)
    else:
        wanted_bytes = to_bytes(expected.get("transmit", ""))
        came = seen.transmit
        fail_unless(came == wanted_bytes, f"transmit {wanted_bytes.hex()}", came.hex())
    events = [expected_event(event) for event in expected.get("events", [])]
    fail_unless(matches(events, seen.events), f"events {events}", f"events {seen.events}")
    for name in ("refused", "error"):
        fail_unless(expected.get(name) == getattr(seen, name), expected, f"{name} {seen}")
    if "returns" in expected:
        fail_unless(expected["returns"] == seen.returns, expected["returns"], seen.returns)
    closed = bool(expected.get("closed", False))
    fail_unless(closed == seen.closed, f"closed {closed}", f"closed {seen.closed}")


def run_conversation(conversation: dict[str, Any]) -> int:
    """Runs one conversation in every cut; returns how many there were."""
    return play_at_every_cut(conversation, Endpoint, check)
