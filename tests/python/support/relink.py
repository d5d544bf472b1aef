"""Both ends of a link of Relink, and waits for what comes over it."""

from ackline import relink

TIME = 20


def pair(listener: relink.Listener, **options) -> tuple[relink.Link, relink.Link]:
    link = relink.connect(listener.url, **options)
    return link, listener.accept(timeout=TIME)


def port(url: str) -> int:
    return int(url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])


def drain(link: relink.Link, count: int) -> list[relink.Message]:
    messages: list[relink.Message] = []
    while len(messages) < count:
        messages += link.receive_many(timeout=TIME)
    return messages


def wait_event(link: relink.Link, name: str) -> relink.Event:
    while (event := link.event(timeout=TIME)).name != name:
        pass
    return event
