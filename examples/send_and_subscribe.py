"""Messages with properties between two ends of MicroMsg2, and subscriptions with filters.

`python examples/send_and_subscribe.py publish micromsg://127.0.0.1:0` prints where it listens, and
sends 1,000 messages to each subscriber; a subscriber is `... subscribe URL 'level>=N8'`.
`... receive URL` prints what `... send URL` sends.
crates/ackline/examples/send_and_subscribe.rs is the same in Rust, and either talks to the other.
"""

import sys
import threading
from datetime import UTC, datetime, timedelta

from ackline import micromsg

START = datetime(2001, 9, 9, 1, 46, 40, 500_000, UTC)


def reading(number: int) -> micromsg.Outgoing:
    """Return the message with this number, of 1,000."""
    properties = {
        "level": number % 10,
        "region": "us é" if number % 2 else "eu",
        "share": number / 4,
        "at": START + timedelta(seconds=number),
    }
    return micromsg.Outgoing(b"%d" % number, "readings", properties)


def publish(url: str) -> None:
    """Listen, and publish to every subscriber until Ctrl-C."""
    with micromsg.listen(url) as listener:
        print(listener.url, flush=True)
        for connection in listener:
            threading.Thread(target=publish_to, args=[connection], daemon=True).start()


def publish_to(connection: micromsg.Connection) -> None:
    """Send the messages that a subscription's filter matches."""
    with connection:
        subscribe = connection.receive_command()
        if not isinstance(subscribe, micromsg.Subscribe):
            connection.fail("subscribe first")
            return
        for message in map(reading, range(1_000)):
            chosen = subscribe.filter
            if chosen is None or chosen.matches(message.properties or {}):
                connection.send(*message[:3])
    print("acknowledged:", connection.stats()["acknowledged"], flush=True)


def subscribe(url: str, text: str) -> None:
    """Subscribe with a filter, and read to the publisher's end."""
    with micromsg.connect(url) as connection:
        connection.subscribe("readings", micromsg.Filter(text))
        count, total, last = 0, 0, ""
        for message in connection:
            count, total, last = count + 1, total + int(message.payload), described(message)
        print(f"{count} readings, sum {total}, last {last}")


def send(url: str) -> None:
    """Send three messages, and wait until they are acknowledged."""
    with micromsg.connect(url) as connection:
        connection.send(b"")
        connection.send_some([reading(7)])
        # More than one frame carries.
        last = connection.send(bytes([7]) * (3 << 20), "large")
        connection.wait_acknowledged(last)
        print("acknowledged:", last)


def receive(url: str) -> None:
    """Print the messages of one sender."""
    with micromsg.listen(url) as listener:
        print(listener.url, flush=True)
        with listener.accept() as connection:
            for message in connection:
                print(described(message), flush=True)


def described(message: micromsg.Message) -> str:
    """Return a message in words."""
    to = f'"{message.destination}"'
    size = len(message.payload)
    return f"{message.position} of {size} bytes to {to}: {message.raw_properties}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", url]:
            publish(url)
        case ["subscribe", url, text]:
            subscribe(url, text)
        case ["send", url]:
            send(url)
        case ["receive", url]:
            receive(url)
        case _:
            sys.exit("usage: send_and_subscribe publish|send|receive URL, or subscribe URL FILTER")
