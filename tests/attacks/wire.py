"""Each protocol by hand, as an attacker writes them: nothing here is checked."""

import contextlib
import socket
import ssl
import struct
import zlib
from collections.abc import Sequence
from urllib.parse import quote

MIB = 1 << 20


def connected(port: int, source: str = "127.0.0.2", timeout: float = 10.0) -> socket.socket:
    """Connects from an address of the loopback network."""
    peer = socket.socket()
    peer.settimeout(timeout)
    peer.bind((source, 0))
    peer.connect(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def received(peer: socket.socket, count: int) -> bytes:
    """Receives exactly so many bytes."""
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece:
            raise EOFError(data)
        data += piece
    return data


# Lumberjack


def w2(events: int) -> bytes:
    """A window frame."""
    return b"2W" + struct.pack(">I", events)


def j2(sequence: int, payload: bytes) -> bytes:
    """A JSON frame."""
    return b"2J" + struct.pack(">II", sequence, len(payload)) + payload


def c2(frames: bytes, level: int = 9) -> bytes:
    """A compressed frame."""
    stream = zlib.compress(frames, level)
    return b"2C" + struct.pack(">I", len(stream)) + stream


def window(payloads: Sequence[bytes]) -> bytes:
    """A whole window of plain frames."""
    return w2(len(payloads)) + b"".join(j2(n, one) for n, one in enumerate(payloads, 1))


# Relink


def relink_shake(peer: socket.socket, name: bytes = b"orders") -> None:
    """Makes a new link."""
    asked = bytes([len(name)]) + name + bytes([4, 4, 0])
    asked += b"\0" * (-len(asked) % 8) + struct.pack("<QQ", 0, 0)
    peer.sendall(b"\0" * 8 + asked)
    received(peer, 24)


RELINK_PING = bytes([1 << 5]) + b"\0" * 7
RELINK_NOP = b"\0" * 8


def _padded(packet: bytes, to: int) -> bytes:
    return packet + b"\0" * (-len(packet) % to)


def _body(packet: bytes, parts: Sequence[bytes], *, large: bool) -> bytes:
    if large:
        packet = _padded(packet, 8)
    for part in parts:
        packet += struct.pack("<Q" if large else "<H", len(part))
    packet = _padded(packet, 8)
    return packet + b"".join(_padded(part, 8) for part in parts)


def relink_message(channel: int, parts: Sequence[bytes]) -> bytes:
    """A message for one channel."""
    large, many = any(len(part) > 65_535 for part in parts), len(parts) > 255
    flags = (1 if many else 0) | (2 if large else 0)
    packet = bytes([1 | 4 << 2 | flags << 5, 0 if many else len(parts)])
    packet = _padded(packet + struct.pack("<I", channel), 2)
    if many:
        packet += struct.pack("<I", len(parts))
    return _body(packet, parts, large=large)


def relink_multicast(channels: Sequence[int], parts: Sequence[bytes]) -> bytes:
    """One message for many channels."""
    large = any(len(part) > 65_535 for part in parts)
    packet = bytes([3 | 4 << 2 | (2 if large else 0) << 5, len(parts), 0, 0])
    packet += struct.pack("<I", len(channels))
    packet += b"".join(struct.pack("<I", channel) for channel in channels)
    return _body(_padded(packet, 2), parts, large=large)


# bpmux

BPMUX_PING = bytes([13 << 4 | 0 | 3])


def bpmux_credit(count: int) -> bytes:
    """Credit for everything that has no credit of its own."""
    return bytes([14 << 4 | 3 << 2 | 3]) + count.to_bytes(8, "big")


def bpmux_sink(number: int) -> bytes:
    """Opens a sink, with an empty payload."""
    return bytes([10 << 4 | 2 << 2]) + struct.pack(">I", number % (1 << 32)) + b"\0"


def bpmux_request(number: int) -> bytes:
    """A request with an empty payload."""
    return bytes([8 << 4 | 2 << 2]) + struct.pack(">I", number % (1 << 32)) + b"\0"


# Reactive Streams


def varint(number: int) -> bytes:
    """A number, seven bits in each byte, the lowest first."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def reactive_shake(peer: socket.socket) -> None:
    """The hellos, and the acceptance of the receiver's subscription: elements of any size."""
    peer.sendall(bytes([1, 0, 0]))
    # The receiver's hello and its subscription to `feed`, with a demand of three bytes.
    assert received(peer, 11)[3:5] == bytes([3, 4])
    peer.sendall(bytes([6, 1, 0]))


def reactive_element(length: int) -> bytes:
    """An element of the receiver's subscription."""
    return bytes([7, 1]) + varint(length) + bytes(length)


def reactive_part(element: int, length: int) -> bytes:
    """A part of an element, and not the last one."""
    return bytes([11, 1]) + varint(element) + varint(length) + bytes(length)


def reactive_subscribe(number: int) -> bytes:
    """A subscription of the client's."""
    return bytes([3, 1]) + b"x" + varint(number) + varint(1)


# MicroMsg2


def micromsg_hello(required: bytes = b"", optional: bytes = b"") -> bytes:
    """A handshake without a name."""
    return (
        bytes([1, 0, 0, 0])
        + struct.pack(">H", len(required))
        + required
        + struct.pack(">H", len(optional))
        + optional
    )


def micromsg_shake(peer: socket.socket, extensions: bytes = b"batch-ack") -> None:
    """The three handshakes: the client's first, the receiver's, and the client's last."""
    peer.sendall(micromsg_hello(optional=extensions))
    received(peer, received(peer, 4)[3])
    for _ in range(2):
        (length,) = struct.unpack(">H", received(peer, 2))
        received(peer, length)
    peer.sendall(micromsg_hello(optional=extensions))


def micromsg_message(
    number: int,
    destination: bytes,
    payload: bytes,
    *,
    properties: bytes = b"",
    continued: bool = False,
) -> bytes:
    """A message, or a fragment of one that others follow."""
    head = _micromsg_head(number, destination, properties)
    head = bytes([8 | (16 if continued else 0)]) + head
    return head + struct.pack(">I", len(payload)) + payload


def micromsg_short(
    number: int, destination: bytes, payload: bytes, properties: bytes = b""
) -> bytes:
    """A message whose payload's length has as few bytes as possible."""
    return _behind_length(0, _micromsg_head(number, destination, properties), payload)


def micromsg_extension(number: int, payload: bytes) -> bytes:
    """A frame of an extension, by its place in the list of extensions from 1."""
    return _behind_length(2, bytes([number]), payload)


def micromsg_command(text: bytes) -> bytes:
    """A command."""
    return _behind_length(1, b"", text)


def micromsg_subscribe(topic: bytes, wanted: bytes = b"") -> bytes:
    """Subscribes to a topic or a queue, with a filter if it is not empty."""
    text = b"subscribe;topic=" + quote(topic, safe="").encode()
    if wanted:
        text += b",filter=" + quote(wanted, safe="").encode()
    return micromsg_command(text)


def micromsg_unsubscribe(topic: bytes) -> bytes:
    """Ends a subscription."""
    return micromsg_command(b"unsubscribe;topic=" + quote(topic, safe="").encode())


def _micromsg_head(number: int, destination: bytes, properties: bytes) -> bytes:
    """The part of a message between its flags and its payload."""
    head = struct.pack(">HB", number, len(destination)) + destination
    return head + struct.pack(">H", len(properties)) + properties


def _behind_length(flags: int, head: bytes, payload: bytes) -> bytes:
    """A frame with the shortest length of its payload."""
    if len(payload) < 256:
        return bytes([flags]) + head + bytes([len(payload)]) + payload
    return bytes([flags | 8]) + head + struct.pack(">I", len(payload)) + payload


# TLS


def client_hello() -> bytes:
    """The first bytes of a client."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
