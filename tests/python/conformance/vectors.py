"""Runs conformance vectors of any protocol against `ackline.sansio`, by its description."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ackline import _core, sansio
from ackline.exceptions import ProtocolError, UsageError
from ackline.sansio import Machine, decode, encode

__all__ = ["VectorFailure", "run_conversation", "run_frame_vector", "to_bytes"]

DESCRIPTION = {"name", "source", "covers", "note"}
STIMULI = {"call", "recv", "advance_ms", "eof"}
EXPECTATIONS = {"transmit", "transmit_frames", "events", "returns", "refused", "error", "closed"}
EVERY_CUT = 8192
describe = cache(sansio.describe)
Json = dict[str, Any]


class VectorFailure(Exception):  # noqa: N818 (what the README calls it)
    """Something was expected, and something else came."""


def fail_unless(condition: object, expected: object, came: object) -> None:
    if not condition:
        raise VectorFailure(f"expected {shorten(expected)}, came {shorten(came)}")


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


def known(members: Json, names: set[str]) -> None:
    unknown = members.keys() - names
    if unknown:
        raise VectorFailure(f"members not understood: {sorted(unknown)}")


def to_bytes(value: Any) -> bytes:
    """BYTES of the vectors' README."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    if "parts" in value:
        known(value, {"parts"})
        return b"".join(to_bytes(part) for part in value["parts"])
    known(value, {"repeat", "count"})
    return bytes.fromhex(value["repeat"]) * int(value["count"])


def to_python(shape: Json, value: Any) -> Any:
    """A value of the vectors as a machine takes it."""
    if shape["is"] == "tagged" and isinstance(value, dict):
        fail_unless(len(value) == 1, "a word and its value", value)
        return next(iter(value.items()))
    convert = CONVERT.get(shape["is"])
    return value if convert is None else convert(shape, value)


def members_to_python(members: Json, values: Json) -> Json:
    known(values, set(members))
    return {name: to_python(members[name], value) for name, value in values.items()}


def frame_to_python(frames: Json, frame: Json) -> Json:
    kind = str(frame.get("type"))
    fail_unless(kind in frames, "a frame that is understood", frame)
    members = {name: value for name, value in frame.items() if name != "type"}
    return {"type": kind} | members_to_python(frames[kind]["members"], members)


CONVERT: dict[str, Callable[[Json, Any], Any]] = {
    "bytes": lambda _, value: to_bytes(value),
    "list": lambda shape, value: [to_python(shape["of"], one) for one in value],
    "row": lambda shape, value: [to_python(*one) for one in zip(shape["of"], value, strict=True)],
    "map": lambda shape, value: members_to_python(shape["members"], value),
    "frames": lambda shape, value: [frame_to_python(shape["frames"], one) for one in value],
}


def to_json(value: Any) -> Any:
    """A value of a machine as the vectors have it."""
    match value:
        case bytes():
            return value.hex()
        case tuple():
            return {value[0]: to_json(value[1])}
        case list():
            return [to_json(one) for one in value]
        case dict():
            return {name: to_json(one) for name, one in value.items()}
    return value


def plain(value: Any) -> Any:
    """A value of the vectors with all bytes written out as hex."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() & {"repeat", "parts"}:
        return to_bytes(value).hex()
    return {name: plain(one) for name, one in value.items()}


def without_nones(value: Any) -> Any:
    """The value without members that are None: a result does not have them."""
    if isinstance(value, list):
        return [without_nones(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: without_nones(one) for name, one in value.items() if one is not None}


def matches(expected: object, came: object, *, in_full: bool = False) -> bool:
    """Equal, also in kind: 1 is neither 1.0 nor True.

    Unless `in_full`, a member that is left out is not compared, and one that is None is absent.
    """
    if isinstance(expected, dict) and isinstance(came, dict):
        if in_full and expected.keys() != came.keys():
            return False
        members = ((value, came.get(name)) for name, value in expected.items())
        return all(matches(one, two, in_full=in_full) for one, two in members)
    if isinstance(expected, list) and isinstance(came, list):
        pairs = zip(expected, came, strict=False)
        return len(expected) == len(came) and all(
            matches(one, two, in_full=in_full) for one, two in pairs
        )
    return type(expected) is type(came) and expected == came


def options(members: Json, config: Json) -> Json:
    """A config or a context as options: its `limits` have other names there."""
    limits = {one["limit"]: name for name, one in members.items() if "limit" in one}
    given = {name: value for name, value in config.items() if name != "limits"}
    known(config.get("limits", {}), set(limits))
    given |= {limits[name]: value for name, value in config.get("limits", {}).items()}
    return members_to_python(members, given)


def code_of(error: ProtocolError) -> str:
    return error.code.rpartition(".")[2]


def cut_positions(length: int) -> list[int]:
    """Every position inside; of very long bytes those around both ends and each 4,093rd between."""
    if length <= EVERY_CUT:
        return list(range(1, length))
    ends = set(range(1, EVERY_CUT // 2)) | set(range(length - EVERY_CUT // 2, length))
    return sorted(ends | set(range(1, length, max(4093, length // 256))))


class Decoder:
    """Decodes in a context of the vectors."""

    def __init__(self, protocol: str, context: Json) -> None:
        self.protocol, self.sender = protocol, context.get("from")
        given = {name: value for name, value in context.items() if name != "from"}
        self.options = options(describe(protocol)["decoding"], given)

    @property
    def is_whole(self) -> bool:
        """Whether the bytes are one text, of which a prefix is another text."""
        return _core.Inspector(self.protocol, self.sender, self.options).is_whole

    def __call__(self, data: bytes) -> tuple[list[Json], int]:
        frames, consumed = decode(self.protocol, data, self.sender, **self.options)
        return to_json(frames), consumed


def run_frame_vector(protocol: str, vector: Json) -> int:
    """Runs one vector of `frames.json`; returns at how many places its bytes were cut."""
    known(vector, DESCRIPTION | {"context", "hex", "frames", "error", "canonical"})
    fail_unless("unit" in vector["context"], "a unit", vector["context"])
    decoded = Decoder(protocol, vector["context"])
    data = to_bytes(vector["hex"])
    if "error" in vector:
        try:
            came: object = decoded(data)
        except ProtocolError as error:
            came = code_of(error)
        fail_unless(came == vector["error"], vector["error"], came)
        return 0
    frames = without_nones(plain(vector["frames"]))
    came_frames, consumed = decoded(data)
    fail_unless(matches(frames, came_frames, in_full=True), frames, came_frames)
    fail_unless(consumed == len(data), f"{len(data)} bytes consumed", consumed)
    if vector["canonical"]:
        described = describe(protocol)["frames"]
        given = [frame_to_python(described, frame) for frame in frames]
        encoded = encode(protocol, given, **decoded.options)
        fail_unless(encoded == data, data.hex(), encoded.hex())
    cuts = [] if decoded.is_whole else cut_positions(len(data))
    for cut in cuts:
        head, taken = decoded(data[:cut])
        rest, left = decoded(data[taken:])
        fail_unless(taken <= cut and head + rest == frames, f"frames cut at {cut}", head)
        fail_unless(taken + left == len(data), f"all bytes when cut at {cut}", taken + left)
    return len(cuts)


@dataclass
class Seen:
    """Everything since the last stimulus, or what is expected of it; by connection."""

    transmit: dict[int, bytes] = field(default_factory=dict)
    transmit_frames: list[Json] | None = None
    events: list[Json] = field(default_factory=list)
    returns: object = None
    refused: str | None = None
    ends: dict[int, str] = field(default_factory=dict)

    def emitted(self, connection: int, data: bytes) -> None:
        if data:
            self.transmit[connection] = self.transmit.get(connection, b"") + data


@dataclass
class Step:
    """A stimulus and what is expected after it."""

    stimulus: Json
    connection: int
    expected: Seen = field(default_factory=Seen)


class Endpoint:
    """One machine on a virtual clock."""

    def __init__(self, protocol: str, conversation: Json) -> None:
        role, config = conversation["role"], conversation["config"]
        roles = describe(protocol)["roles"]
        fail_unless(role in roles, "a role that is understood", role)
        self.described = roles[role]
        given = options(self.described["options"], config)
        self.machine: Machine[Any] = Machine(protocol, role, **given)
        self.now = 0
        self.failed: dict[int, str] = {}
        self.ended: set[int] = set()
        self.seen = Seen()

    def is_over(self, connection: int) -> bool:
        self.machine.select(connection)
        return self.machine.lifecycle != "open"

    def receive(self, connection: int, data: bytes) -> None:
        while not self.is_over(connection):
            try:
                need, _ = self.machine.receive(self.now, data)
            except ProtocolError as error:
                self.failed[connection] = code_of(error)
                break
            data = b""
            took = self.take_events()
            if need == "input" or (need == "room" and not took):
                break
        self.take_events()

    def eof(self, connection: int) -> None:
        self.machine.select(connection)
        try:
            self.machine.receive_eof(self.now)
        except ProtocolError as error:
            self.failed[connection] = code_of(error)

    def advance(self, to_ms: int, *, hold: bool) -> None:
        while (due := self.machine.poll_timeout()) is not None and due <= to_ms:
            self.now = max(self.now, due)
            self.machine.select(1)
            try:
                self.machine.handle_timeout(self.now)
            except ProtocolError as error:
                self.failed[1] = code_of(error)
            self.take(hold=hold)
        self.now = to_ms

    def call(self, connection: int, call: Json) -> None:
        verb = call["verb"]
        fail_unless(verb in self.described["verbs"], "a verb that is understood", call)
        given = {name: value for name, value in call.items() if name != "verb"}
        given = members_to_python(self.described["verbs"][verb]["members"], given)
        self.machine.select(connection)
        try:
            self.seen.returns = to_json(self.machine.call(self.now, verb, **given))
        except UsageError as error:
            self.seen.refused = error.code
        self.receive(connection, b"")

    def take(self, *, hold: bool) -> None:
        for connection in range(1, self.machine.connections + 1):
            self.machine.select(connection)
            while not hold and (data := self.machine.poll_transmit(self.now)):
                self.seen.emitted(connection, data)
        self.take_events()

    def take_events(self) -> bool:
        took = False
        while (event := self.machine.poll_event()) is not None:
            took = True
            if not self.described["events"][event["event"]]["beside_the_vectors"]:
                self.seen.events.append(to_json(event))
        return took

    def take_ends(self) -> None:
        """Notes the ends that are new; a new transport begins without one."""
        for connection in range(1, self.machine.connections + 1):
            if not self.is_over(connection):
                self.ended.discard(connection)
                self.failed.pop(connection, None)
            elif connection not in self.ended:
                self.ended.add(connection)
                self.seen.ends[connection] = self.failed.get(connection) or self.end(connection)

    def end(self, connection: int) -> str:
        self.machine.select(connection)
        try:
            self.machine.receive(self.now, b"")
        except ProtocolError as error:
            return code_of(error)
        return "closed"


def connection_of(step: Json) -> int:
    connection = step.get("connection", 1)
    fail_unless(isinstance(connection, int) and connection > 0, "a connection", step)
    return int(connection)


def parse(described: Json, steps: list[Json]) -> list[Step]:
    """Each stimulus with what is expected after it."""
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
        expected.events += [expected_event(described, event) for event in step.get("events", [])]
        expected.transmit_frames = plain(step.get("transmit_frames", expected.transmit_frames))
        expected.returns = step.get("returns", expected.returns)
        expected.refused = step.get("refused", expected.refused)
        if "error" in step:
            expected.ends[connection] = step["error"]
        elif step.get("closed"):
            expected.ends[connection] = "closed"
    return parsed


def expected_event(described: Json, event: Json) -> Json:
    told = described["events"].get(event.get("event"))
    fail_unless(told, "an event that is understood", event)
    known(event, {"event", *told["members"]})
    expected: Json = plain(event)
    return expected


def check(decoded: Decoder, expected: Seen, came: Seen) -> None:
    if expected.transmit_frames is not None:
        data = came.transmit.get(1, b"")
        frames, consumed = decoded(data)
        fail_unless(consumed == len(data), "whole frames", data.hex())
        wanted = expected.transmit_frames
        fail_unless(matches(wanted, frames), wanted, frames)
    else:
        fail_unless(
            expected.transmit == came.transmit,
            f"transmit { {one: data.hex() for one, data in expected.transmit.items()} }",
            f"transmit { {one: data.hex() for one, data in came.transmit.items()} }",
        )
    events, came_events = expected.events, came.events
    fail_unless(matches(events, came_events), f"events {events}", f"events {came_events}")
    if expected.returns is not None:
        same = matches(expected.returns, came.returns, in_full=True)
        fail_unless(same, expected.returns, came.returns)
    fail_unless(expected.refused == came.refused, f"refused {expected.refused}", came.refused)
    fail_unless(expected.ends == came.ends, f"ends {expected.ends}", f"ends {came.ends}")


def output_decoder(protocol: str, conversation: Json) -> Decoder:
    """Decodes the role's output: the last unit of a description is that of a connection."""
    described = describe(protocol)
    decoding = described["decoding"]
    config = conversation["config"]
    context = {name: config[name] for name in decoding.keys() & config.keys()}
    context["unit"] = decoding["unit"]["words"][-1]
    if len(described["roles"]) > 1:
        context["from"] = conversation["role"]
    return Decoder(protocol, context)


def play(
    protocol: str, conversation: Json, steps: list[Step], deliver: dict[int, list[bytes]]
) -> None:
    """Plays a conversation; `deliver` says how the bytes of a `recv` step are cut."""
    endpoint = Endpoint(protocol, conversation)
    decoded = output_decoder(protocol, conversation)
    for index, step in enumerate(steps):
        stimulus, hold = step.stimulus, bool(step.stimulus.get("hold"))
        if "call" in stimulus:
            endpoint.call(step.connection, stimulus["call"])
        elif "recv" in stimulus:
            for piece in deliver.get(index) or [to_bytes(stimulus["recv"])]:
                endpoint.receive(step.connection, piece)
                endpoint.take(hold=hold)
        elif "advance_ms" in stimulus:
            endpoint.advance(endpoint.now + stimulus["advance_ms"], hold=hold)
        else:
            endpoint.eof(step.connection)
        endpoint.take(hold=hold)
        endpoint.take_ends()
        try:
            check(decoded, step.expected, endpoint.seen)
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
        size = max(1, max(map(len, received.values())) // (1 << 20))
        yield {
            index: [data[at : at + size] for at in range(0, len(data), size)]
            for index, data in received.items()
            if data
        }


def run_conversation(protocol: str, conversation: Json) -> int:
    """Runs one conversation in every cut; returns how many there were."""
    known(conversation, DESCRIPTION | {"role", "config", "steps"})
    described = describe(protocol)["roles"].get(conversation["role"], {"events": {}})
    steps = parse(described, conversation["steps"])
    play(protocol, conversation, steps, {})
    splits = 0
    for delivery in deliveries(steps):
        splits += 1
        try:
            play(protocol, conversation, steps, delivery)
        except VectorFailure as failure:
            sizes = {index: [len(piece) for piece in cut][:4] for index, cut in delivery.items()}
            raise VectorFailure(f"cut {sizes}: {failure}") from None
    return splits
