"""bpmux for threads: both ends in one process over real sockets, and across processes."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.bpmux import NOW, TIME, URL, manual
from support.commands import python, wait_until

from ackline import (
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    RequestClosed,
    TransportError,
    UsageError,
    bpmux,
)


def test_a_request_is_answered(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    response = near.request(b"question")
    request = far.accept(timeout=TIME)
    assert isinstance(request, bpmux.Request)
    assert request.payload == b"question"
    assert response.try_response() is None
    with pytest.raises(LinkTimeout):
        response.response(timeout=NOW)
    request.respond(b"answer")
    assert response.response(timeout=TIME) == b"answer"
    with pytest.raises(UsageError, match="answered") as refused:
        request.respond(b"again")
    assert refused.value.code == "already_ended"


def test_a_closed_response_tells_why(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    response = near.request(b"question")
    request = far.accept(timeout=TIME)
    assert isinstance(request, bpmux.Request)
    request.close(b"no \xff")
    with pytest.raises(RequestClosed) as closed:
        response.response(timeout=TIME)
    assert closed.value.payload == b"no \xff"


def test_a_cancelled_request_tells_why(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    response = near.request(b"question")
    request = far.accept(timeout=TIME)
    assert isinstance(request, bpmux.Request)
    with pytest.raises(LinkTimeout):
        request.wait_cancelled(timeout=NOW)
    response.cancel(b"late")
    assert request.wait_cancelled(timeout=TIME) == b"late"
    assert request.cancelled == b"late"
    with pytest.raises(PeerCancelled) as cancelled:
        request.respond(b"answer")
    assert cancelled.value.payload == b"late"
    with pytest.raises(LinkClosed):
        response.response(timeout=TIME)


def test_a_refused_cancel_changes_nothing(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    response = near.request(b"question")
    request = far.accept(timeout=TIME)
    assert isinstance(request, bpmux.Request)
    request.respond(b"answer")
    sink = far.open_sink(b"log")
    opened = near.accept(timeout=TIME)
    assert isinstance(opened, bpmux.OpenedSink)
    sink.send_many([b"one", b"two"])
    sink.close(b"done", timeout=TIME)
    for cancel in (response.cancel, opened.stream.cancel):
        with pytest.raises(UsageError) as refused:
            cancel(b"too late")
        assert refused.value.code == "already_ended"
    far.abort()
    near.wait_ended(timeout=TIME)
    for cancel in (response.cancel, opened.stream.cancel):
        with pytest.raises(LinkClosed):
            cancel(b"too late")
    assert response.response(timeout=TIME) == b"answer"
    assert list(opened.stream) == [b"one", b"two"]
    assert opened.stream.closed == b"done"


def test_a_call_out_of_time_cancels(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    came: list[bpmux.Incoming | None] = []

    def call() -> bool:
        with pytest.raises(LinkTimeout, match=r"no response came within 0\.01 s"):
            near.call(b"question", timeout=NOW)
        # A request that had no time to leave never arrives.
        try:
            came.append(far.accept(timeout=NOW))
        except LinkTimeout:
            return False
        return True

    wait_until(call, "a request came")
    request = came[0]
    assert isinstance(request, bpmux.Request)
    assert request.wait_cancelled(timeout=TIME) == b""


def test_a_sink_is_read_to_its_end(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    messages = [b"%d" % number * 50 for number in range(3000)]
    with ThreadPoolExecutor(1) as threads:
        with near.open_sink(b"log", timeout=TIME) as sink:
            opened = far.accept(timeout=TIME)
            assert isinstance(opened, bpmux.OpenedSink)
            assert opened.payload == b"log"
            assert opened.stream.closed is None
            read = threads.submit(list, opened.stream)
            sink.send_many(messages[:2000], timeout=TIME)
            for message in messages[2000:]:
                sink.send(message, timeout=TIME)
            sink.close(b"3000", timeout=TIME)
        assert read.result(timeout=TIME) == messages
    assert opened.stream.closed == b"3000"
    with pytest.raises(LinkClosed, match="sink was ended here"):
        sink.send(b"more")


def test_a_stream_is_cancelled_with_a_payload(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    stream = near.open_stream(b"prices")
    opened = far.accept(timeout=TIME)
    assert isinstance(opened, bpmux.OpenedStream)
    assert opened.sink.cancelled is None
    opened.sink.send(bytearray(b"one"))
    opened.sink.send(memoryview(b"two"))
    assert stream.receive(timeout=TIME) == b"one"
    assert stream.receive_many(timeout=TIME) == [b"two"]
    assert stream.try_receive_many() == []
    stream.cancel(b"enough", timeout=TIME)
    assert opened.sink.wait_cancelled(timeout=TIME) == b"enough"
    for use in (lambda: opened.sink.send(b"x"), lambda: opened.sink.flush(timeout=TIME)):
        with pytest.raises(PeerCancelled) as cancelled:
            use()
        assert cancelled.value.payload == b"enough"
    with pytest.raises(LinkClosed, match="stream was ended here"):
        stream.receive()


def test_nothing_is_lost_where_both_halves_end_at_once(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    for _ in range(200):
        duplex = near.open_duplex()
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedDuplex)
        with ThreadPoolExecutor(2) as threads:
            cancel = threads.submit(duplex.cancel, b"enough", timeout=TIME)
            duplex.send(b"last")
            close = threads.submit(duplex.close, b"bye", timeout=TIME)
            assert list(opened.duplex) == [b"last"]
            assert opened.duplex.wait_cancelled(timeout=TIME) == b"enough"
            cancel.result(timeout=TIME)
            close.result(timeout=TIME)
        assert opened.duplex.closed == b"bye"


def test_the_halves_of_a_duplex_end_by_themselves(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    duplex = near.open_duplex(b"d")
    opened = far.accept(timeout=TIME)
    assert isinstance(opened, bpmux.OpenedDuplex)
    duplex.send(b"a")
    duplex.close(timeout=TIME)
    assert list(opened.duplex) == [b"a"]
    large = bytes(range(256)) * 8000
    opened.duplex.send(large)
    assert duplex.receive(timeout=TIME) == large
    assert duplex.ping(timeout=TIME) > 0
    opened.duplex.close(b"done", timeout=TIME)
    assert duplex.receive(timeout=TIME) is None
    assert duplex.closed == b"done"


def test_messages_of_the_top_level(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    near.sink.send_many([b"1", b"2"])
    near.sink.flush(timeout=TIME)
    near.close(b"bye")
    assert list(far.stream) == [b"1", b"2"]
    assert far.stream.closed == b"bye"
    assert far.accept(timeout=TIME) is None
    with pytest.raises(UsageError) as refused:
        near.request(b"x")
    assert refused.value.code == "top_level_closed"


def test_a_sender_without_credit_waits() -> None:
    with manual() as (near, far):
        near.sink.send(bytes(1000))
        assert not near.sink.try_send(b"x")
        with pytest.raises(LinkTimeout, match="no room within"):
            near.sink.send(b"x", timeout=NOW)
        # A send that waits on a sink delays no request, only other sends on that sink.
        waiting = near.request(bytes(1000), timeout=NOW)
        with pytest.raises(LinkTimeout, match="no room within"):
            near.request(b"x", timeout=NOW)
        waiting.cancel()
        with pytest.raises(LinkTimeout, match="did not go"):
            near.sink.flush(timeout=NOW)
        with pytest.raises(LinkTimeout, match="room for 0 of 2"):
            near.sink.send_many([b"x", b"y"], timeout=NOW)
        with pytest.raises(LinkTimeout, match="opening was not sent"):
            near.open_sink(b"x", timeout=NOW)
        far.stream.grant_credit(1500)
        near.sink.send(b"x", timeout=TIME)
        near.sink.flush(timeout=TIME)
        assert far.stream.receive(timeout=TIME) == bytes(1000)
        assert far.stream.receive(timeout=TIME) == b"x"


def test_a_response_is_handed_out_once(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    response = near.request(b"question")
    request = far.accept(timeout=TIME)
    assert isinstance(request, bpmux.Request)
    request.respond(b"answer")
    assert response.response(timeout=TIME) == b"answer"
    for again in (response.response, response.try_response):
        with pytest.raises(UsageError) as refused:
            again()
        assert refused.value.code == "already_ended"


def test_responses_may_be_awaited_in_any_order(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    responses = [near.request(b"%d" % number, timeout=TIME) for number in range(100)]
    requests = [far.accept(timeout=TIME) for _ in responses]
    for request in reversed(requests):
        assert isinstance(request, bpmux.Request)
        request.respond(request.payload * 60_000)
    for number, response in enumerate(responses):
        assert response.response(timeout=TIME) == b"%d" % number * 60_000


def test_a_ping_of_a_request_and_of_the_connection(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    response = near.request(b"slow")
    request = far.accept(timeout=TIME)
    assert response.ping(timeout=TIME) > 0
    assert far.ping(timeout=TIME) > 0
    assert request is not None


def test_both_ends_know_each_other_and_count(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    assert near.peer is None
    assert far.peer is not None
    assert far.peer.sender == "127.0.0.1"
    sink = near.open_sink(b"four")
    opened = far.accept(timeout=TIME)
    stats = near.stats()
    assert (stats["own_entities"], stats["bytes_sent"]) == (1, 4)
    assert far.stats()["bytes_received"] == 4
    assert isinstance(opened, bpmux.OpenedSink)
    assert sink.cancelled is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"credit": "some"}, 'credit is some; it is "automatic" or "manual"'),
        ({"credit_floor": 0}, "credit_floor is 0"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"send_bytes": 0}, "send_bytes is 0"),
        ({"memory": 10}, "memory is 10; it is at least"),
        ({"ping_after": 0}, "ping_after is 0; it is a number of seconds"),
        ({"pong_timeout": -1}, "pong_timeout is -1"),
        ({"max_entities": 0}, "max_entities is 0"),
        ({"ca": "/nowhere"}, "ca"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], text: str) -> None:
    for begin in (bpmux.listen, bpmux.connect):
        with pytest.raises(UsageError, match=text):
            begin(URL, **options)


def test_wrong_arguments_are_named(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, _ = pair
    with pytest.raises(UsageError, match="a payload is bytes"):
        near.request("text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeout is -1"):
        near.accept(timeout=-1)
    with pytest.raises(UsageError, match="count is -1"):
        near.stream.grant_credit(-1)
    with pytest.raises(UsageError, match="not of bpmux"):
        bpmux.connect("lumberjack://127.0.0.1:1")


def test_nobody_is_reached() -> None:
    with bpmux.listen(URL) as listener:
        url = listener.url
    with pytest.raises(TransportError):
        bpmux.connect(url)
    with pytest.raises(LinkClosed):
        listener.accept(timeout=TIME)


def test_a_limit_of_the_peers_ends_the_connection() -> None:
    with bpmux.listen(URL, max_requests=1) as listener:
        near = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
    responses = [near.request(b"1"), near.request(b"2")]
    far.wait_ended(timeout=TIME)
    assert len(responses) == 2
    assert isinstance(far.accept(timeout=TIME), bpmux.Request)
    with pytest.raises(ProtocolError) as broken:
        far.accept(timeout=TIME)
    assert broken.value.protocol == "bpmux"


@pytest.mark.parametrize("error", [PeerCancelled("text", b"why"), RequestClosed("text", b"why")])
def test_errors_are_pickled_with_their_payload(error: PeerCancelled | RequestClosed) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.payload) == (type(error), "text", b"why")


SERVER = """
from ackline import bpmux
with bpmux.listen("bpmux://127.0.0.1:0") as listener:
    print(listener.url, flush=True)
    listener.accept(timeout=20).serve(on_request=lambda payload: payload[::-1])
print("served")
"""


def test_another_process_is_called() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        with bpmux.connect(server.stdout.readline().strip()) as near:
            assert near.call(b"abc", timeout=TIME) == b"cba"
        assert server.stdout.readline() == "served\n"


FORK = """
import os, warnings
warnings.simplefilter("ignore")  # the interpreter warns of forks beside threads: that is the test
from ackline import ForkError, bpmux
listener = bpmux.listen("bpmux://127.0.0.1:0")
near = bpmux.connect(listener.url)
far = listener.accept(timeout=20)
response, request = near.request(b"x"), far.accept(timeout=20)
duplex, opened = near.open_duplex(), far.accept(timeout=20)
pid = os.fork()
if pid == 0:
    code = 1
    try:
        uses = [
            lambda: listener.accept(timeout=1), lambda: near.request(b"y"), near.stats,
            lambda: far.accept(timeout=1), lambda: response.response(timeout=1), near.close,
            lambda: request.respond(b""), lambda: duplex.send(b""), lambda: duplex.receive(),
            lambda: near.shutdown(timeout=1), near.abort, duplex.close, duplex.cancel,
        ]
        for use in uses:
            try:
                use()
            except ForkError:
                continue
            os._exit(2)
        del listener, near, far, response, duplex, request, opened, uses, use  # forgotten
        with bpmux.listen("bpmux://127.0.0.1:0") as own:
            other = bpmux.connect(own.url)
            other.sink.send(b"z")
            assert own.accept(timeout=20).stream.receive(timeout=20) == b"z"
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
request.respond(b"answer")
assert response.response(timeout=20) == b"answer"
duplex.send(b"y")
assert opened.duplex.receive(timeout=20) == b"y"
print("alive")
"""


def test_a_fork_leaves_the_parents_connection_alone() -> None:
    done = python(FORK)
    assert (done.stdout, done.stderr) == ("alive\n", "")


def test_a_message_above_the_memory_is_received_in_parts() -> None:
    with bpmux.listen(URL, parts=True, memory=8 << 20, max_payload_bytes=1000) as listener:
        near = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
    size = 100 << 20
    with near, far, near.open_sink(timeout=TIME) as sink:
        sink.send(bytes(size), timeout=TIME)
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        with pytest.raises(UsageError, match="more than 1000 bytes") as refused:
            opened.stream.receive(timeout=TIME)
        assert refused.value.code == "too_large"
        came = parts = 0
        while not (part := opened.stream.receive_part(timeout=TIME)).is_last:
            came += len(part.data)
            parts += 1
        assert came + len(part.data) == size
        assert parts > 1000
        sink.send(b"whole", timeout=TIME)
        assert opened.stream.receive_part(timeout=TIME) == bpmux.Part(b"whole", is_last=True)
        with pytest.raises(LinkTimeout, match="no part came within"):
            opened.stream.receive_part(timeout=NOW)
        sink.close(timeout=TIME)
        assert opened.stream.receive_part(timeout=TIME) is None


def test_without_parts_each_message_is_one_part_and_a_longer_one_ends_the_connection() -> None:
    with bpmux.listen(URL, max_payload_bytes=1000) as listener:
        near = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
    sink = near.open_sink(timeout=TIME)
    sink.send_many([b"one", bytes(1001)])
    opened = far.accept(timeout=TIME)
    assert isinstance(opened, bpmux.OpenedSink)
    assert opened.stream.receive_part(timeout=TIME) == bpmux.Part(b"one", is_last=True)
    with pytest.raises(ProtocolError, match=r"max.payload.bytes"):
        opened.stream.receive_part(timeout=TIME)
    near.abort()
    far.abort()
