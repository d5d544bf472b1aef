"""Options of a protocol in the query of a URL: each URL of a receiver may have its own."""

import contextlib

import pytest
from support.commands import DEADLINE, ackline, wait_until

from ackline import AcklineError, LinkTimeout, Receiver, UsageError, bpmux, lumberjack, relink

NEAR = "127.0.0.1:0"


def refused(receiver: Receiver) -> dict[str, object]:
    """The next line that tells of a refusal."""
    return next(line for line in receiver.events(timeout=DEADLINE) if line["event"] == "refused")


def test_two_urls_of_one_receiver_have_different_limits():
    urls = [f"lumberjack://{NEAR}?max_window_events=2", f"lumberjack://{NEAR}"]
    with Receiver(urls, discard=True) as receiver:
        assert [url.partition("?")[1] for url in receiver.urls] == ["", ""]
        narrow, wide = receiver.urls
        with lumberjack.connect(wide) as writer:
            writer.send([b"{}"] * 3, timeout=DEADLINE)
        with contextlib.suppress(AcklineError), lumberjack.connect(narrow) as writer:
            writer.send([b"{}"] * 2, timeout=DEADLINE)
            with pytest.raises(LinkTimeout):
                writer.send([b"{}"] * 3, timeout=0.5)
            writer.close(timeout=0)
        line = refused(receiver)
        assert (line["code"], line["limit"]) == ("lumberjack.window_too_large", 2)
        assert receiver.stats()["events"] == 5


def test_a_url_overrides_an_option_of_the_receiver():
    options = {"max_payload_bytes": 10}
    urls = [f"bpmux://{NEAR}?max_payload_bytes=1KiB", f"bpmux://{NEAR}"]
    with Receiver(urls, discard=True, options=options) as receiver:
        for url, is_taken in zip(receiver.urls, (True, False), strict=True):
            link = bpmux.connect(url)
            with contextlib.suppress(AcklineError), link.open_sink(timeout=DEADLINE) as sink:
                sink.send(b"x" * 100, timeout=DEADLINE)
            if is_taken:
                link.shutdown(timeout=DEADLINE)
            else:
                assert refused(receiver)["limit"] == 10
        wait_until(lambda: receiver.stats()["events"] == 1, "the message within its limit is there")


def test_a_listener_of_lumberjack_takes_options_of_its_url():
    with (
        lumberjack.listen(f"lumberjack://{NEAR}?max_window_events=2") as listener,
        contextlib.suppress(AcklineError),
        lumberjack.connect(listener.url) as writer,
    ):
        with pytest.raises(LinkTimeout):
            writer.send([b"{}"] * 3, timeout=0.5)
        assert listener.refused()[0][1] == "lumberjack.window_too_large"
        writer.close(timeout=0)
    with pytest.raises(UsageError, match="max_pairs is 0; it is a whole number"):
        lumberjack.listen(f"lumberjack://{NEAR}?max_pairs=0")


def test_a_link_takes_options_of_its_url_at_both_ends():
    channel = b"\0\0\0\1"
    with relink.listen(f"relink://{NEAR}/orders?max_message_bytes=10") as listener:
        link = relink.connect(listener.url + "?max_message_bytes=20", max_message_bytes=5)
        peer = listener.accept(timeout=DEADLINE)
        for end, most in ((link, 20), (peer, 10)):
            with pytest.raises(UsageError, match=f"max_message_bytes is {most}"):
                end.send(channel, b"x" * (most + 1))
        with pytest.raises(UsageError, match="there is no option"):
            relink.connect(listener.url + "?speed=1")
        link.close(timeout=0)
        peer.close(timeout=0)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"bpmux://{NEAR}?ping_after=soon", "ping_after is soon; it is a time such as"),
        (f"bpmux://{NEAR}?ping_after=1s&ping_after=2s", "ping_after is given twice"),
        (f"relink://{NEAR}/n?max_links=0", "max_links is 0; it is a whole number from 1"),
        (f"lumberjack://{NEAR}?max_pairs=x", "max_pairs is x; it is a whole number"),
        (f"lumberjack://{NEAR}?credit_floor=1", "there is no option"),
        (f"bpmux://{NEAR}?credit_floor=8MiB", "credit_ceiling is 4194304; it is at least"),
    ],
)
def test_a_wrong_option_of_a_url_is_named_before_anything_listens(url, says):
    with pytest.raises(UsageError, match=says) as caught:
        Receiver([url], discard=True)
    assert caught.value.option in {says.partition(" ")[0], None}
    run = ackline("receive", url, "--discard")
    assert run.returncode == 2
    assert run.stderr.startswith("ackline: ")
    assert "THROWN AWAY" not in run.stderr


@pytest.mark.parametrize(
    ("call", "url"),
    [
        (lumberjack.listen, f"lumberjack://{NEAR}?max_pairs=0"),
        (bpmux.listen, f"bpmux://{NEAR}?max_requests=0"),
        (bpmux.connect, "bpmux://127.0.0.1:1?max_requests=0"),
        (relink.listen, f"relink://{NEAR}/n?max_links=0"),
        (relink.connect, "relink://127.0.0.1:1/n?max_channels=0"),
    ],
)
def test_an_error_of_an_option_in_a_url_names_both(call, url):
    place, _, query = url.partition("?")
    option = query.partition("=")[0]
    with pytest.raises(UsageError) as caught:
        call(url)
    assert (caught.value.code, caught.value.option) == ("url", option)
    assert str(caught.value).startswith(f'"{place}": {option} is 0; it is a whole number from 1 to')


def test_the_command_line_names_an_option_of_a_url_as_the_url_does():
    run = ackline("receive", f"lumberjack://{NEAR}?max_pairs=0", "--discard")
    text = (
        f'ackline: "lumberjack://{NEAR}": max_pairs is 0; it is a whole number from 1 to 4294967295'
    )
    assert run.stderr.splitlines() == [text]


def test_urls_of_one_address_have_the_same_options(tmp_path):
    urls = [
        f"relink+unix://{tmp_path}/s?endpoint={name}&max_links={n}"
        for n, name in ((1, "a"), (2, "b"))
    ]
    with pytest.raises(UsageError, match="URLs of one address have the same"):
        Receiver(urls, discard=True)


def test_an_option_of_the_url_goes_before_the_keyword() -> None:
    with pytest.raises(UsageError, match="credit_ceiling is 4194304; it is at least 8388608"):
        bpmux.listen("bpmux://127.0.0.1:0?credit_floor=8MiB", credit_floor=1)
