"""Topics and queues of MicroMsg2: a publisher, subscribers with filters, and a queue with workers.

The guide docs/topics-and-queues.md explains these programs.
"""

import json
import os
import sys
import time

from ackline import micromsg
from ackline.micromsg import where

ALERTS = 1_000
JOBS = 100
REGIONS = ("eu", "us", "asia")
SEVERE = (where("level") >= 3) & (where("region") == "eu")


def publish(url: str) -> None:
    """Publish alerts to a topic."""
    with micromsg.connect(url) as connection:
        for number in range(ALERTS):
            properties = {"level": number % 7, "region": REGIONS[number % 3]}
            payload = json.dumps({"number": number, "text": "the disk is full"})
            connection.send(payload.encode(), "alerts", properties)
        connection.send(b"", "alerts", {"level": 9, "region": "eu", "last": 1})
    print("published:", ALERTS)


def europe(url: str) -> None:
    """Count the alerts of one region."""
    with micromsg.connect(url) as connection:
        connection.subscribe("alerts", where("region") == "eu")
        print("europe:", counted(connection))


def severe(url: str) -> None:
    """Count the severe alerts of one region: the broker sends no others."""
    with micromsg.connect(url) as connection:
        connection.subscribe("alerts", SEVERE)
        print("severe:", counted(connection))


def counted(connection: micromsg.Connection) -> int:
    """Take messages up to the last one."""
    print("subscribed", flush=True)
    count = 0
    for message in connection:
        if "last" in message.properties:
            break
        count += 1
    return count


def slow(url: str) -> None:
    """Take one alert above the lowest level in a tenth of a second, with a window of ten."""
    with micromsg.connect(url, window=10) as connection:
        connection.subscribe("alerts", where("level") >= 1)
        print("subscribed", flush=True)
        for message in connection:
            print("slow:", json.loads(message.payload)["number"], flush=True)
            time.sleep(0.1)


def submit(url: str) -> None:
    """Put jobs into a queue; each is acknowledged when it is on the broker's disk."""
    with micromsg.connect(url) as connection:
        for number in range(JOBS):
            connection.send(str(number).encode(), "queue/jobs")
        connection.wait_acknowledged()
    print("submitted:", JOBS)


def work(url: str) -> None:
    """Do jobs, and acknowledge each when it is done."""
    with micromsg.connect(url, window=5, ack_policy="manual") as connection:
        connection.subscribe("queue/jobs")
        for job in connection:
            time.sleep(0.02)
            print("done:", job.payload.decode(), "by", os.getpid(), flush=True)
            job.ack()


PROGRAMS = {
    "publish": publish,
    "europe": europe,
    "severe": severe,
    "slow": slow,
    "submit": submit,
    "work": work,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2])
