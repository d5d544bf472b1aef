"""Shared parts of the runners of the conformance vectors, for any protocol."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = [
    "DESCRIPTION",
    "Seen",
    "VectorFailure",
    "cut_positions",
    "fail_unless",
    "known",
    "matches",
    "play_at_every_cut",
    "shorten",
    "to_bytes",
]

DESCRIPTION = {"name", "source", "covers", "note"}


class VectorFailure(Exception):  # noqa: N818 (the README's name for it)
    """The expected and the actual outcome."""


def fail_unless(condition: object, expected: object, came: object) -> None:
    if not condition:
        raise VectorFailure(f"expected {shorten(expected)}, came {shorten(came)}")


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


def known(members: dict[str, Any], names: set[str]) -> None:
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


EVERY_CUT = 8192


def cut_positions(length: int) -> list[int]:
    """Every position inside; of very long bytes those around both ends and each 4,093rd between."""
    if length <= EVERY_CUT:
        return list(range(1, length))
    ends = set(range(1, EVERY_CUT // 2)) | set(range(length - EVERY_CUT // 2, length))
    return sorted(ends | set(range(1, length, max(4093, length // 256))))


def matches(expected: object, came: object) -> bool:
    """Equal, where a member that is left out is not compared."""
    if isinstance(expected, dict) and isinstance(came, dict):
        return all(name in came and matches(value, came[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(came, list):
        pairs = zip(expected, came, strict=False)
        return len(expected) == len(came) and all(matches(one, two) for one, two in pairs)
    return expected == came


STIMULI = {"call", "recv", "advance_ms", "eof"}
EXPECTATIONS = {"transmit", "transmit_frames", "events", "returns", "refused", "error", "closed"}


@dataclass
class Seen:
    """Everything since the last stimulus."""

    transmit: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)
    returns: object = None
    refused: str | None = None
    error: str | None = None
    closed: bool = False


class Endpoint(Protocol):
    """One machine on a virtual clock, for conversations over one transport."""

    now: int
    seen: Seen

    def receive(self, data: bytes) -> None: ...
    def eof(self) -> None: ...
    def advance(self, to_ms: int) -> None: ...
    def call(self, call: dict[str, Any]) -> None: ...
    def take_events(self) -> bool: ...
    def take_output(self) -> None: ...


Check = Callable[[Any, dict[str, Any]], None]


def groups(steps: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each stimulus with the expected events after it."""
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for step in steps:
        known(step, STIMULI | EXPECTATIONS | {"hold"})
        if step.keys() & STIMULI:
            fail_unless(len(step.keys() & STIMULI) == 1, "one stimulus", step)
            found.append((step, {}))
        else:
            fail_unless(found and "hold" not in step, "a stimulus before", step)
        found[-1][1].update({name: step[name] for name in step.keys() & EXPECTATIONS})
    return found


def play(
    conversation: dict[str, Any],
    deliver: dict[int, list[bytes]],
    make: Callable[[str, dict[str, Any]], Endpoint],
    check: Check,
) -> None:
    """Plays a conversation; `deliver` says how the bytes of a `recv` step are cut."""
    endpoint = make(conversation["role"], conversation["config"])
    for index, (stimulus, expected) in enumerate(groups(conversation["steps"])):
        if "call" in stimulus:
            endpoint.call(stimulus["call"])
        elif "recv" in stimulus:
            for piece in deliver.get(index) or [to_bytes(stimulus["recv"])]:
                endpoint.receive(piece)
        elif "advance_ms" in stimulus:
            endpoint.advance(endpoint.now + stimulus["advance_ms"])
        else:
            endpoint.eof()
        endpoint.take_events()
        if not stimulus.get("hold"):
            endpoint.take_output()
        if stimulus.get("hold") and not expected:
            continue
        try:
            check(endpoint, expected)
        except VectorFailure as failure:
            raise VectorFailure(f"step {index} {shorten(stimulus)}: {failure}") from None
        endpoint.seen = Seen()


def deliveries(conversation: dict[str, Any]) -> Iterator[dict[int, list[bytes]]]:
    """Every cut of every `recv`, and all of them byte by byte."""
    received = {
        index: to_bytes(stimulus["recv"])
        for index, (stimulus, _) in enumerate(groups(conversation["steps"]))
        if "recv" in stimulus
    }
    for index, data in received.items():
        for cut in cut_positions(len(data)):
            yield {index: [data[:cut], data[cut:]]}
    if any(len(data) > 1 for data in received.values()):
        step = max(1, max(map(len, received.values())) // (1 << 20))
        yield {
            index: [data[at : at + step] for at in range(0, len(data), step)]
            for index, data in received.items()
            if data
        }


def play_at_every_cut(
    conversation: dict[str, Any],
    make: Callable[[str, dict[str, Any]], Endpoint],
    check: Check,
) -> int:
    """Runs one conversation in every cut; returns how many there were."""
    known(conversation, DESCRIPTION | {"role", "config", "steps"})
    play(conversation, {}, make, check)
    splits = 0
    for delivery in deliveries(conversation):
        splits += 1
        try:
            play(conversation, delivery, make, check)
        except VectorFailure as failure:
            sizes = {index: [len(piece) for piece in cut][:4] for index, cut in delivery.items()}
            raise VectorFailure(f"cut {sizes}: {failure}") from None
    return splits
