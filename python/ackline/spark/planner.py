"""The planner of a JVM: one process that plans all queries of the data source in Java.

`python -m ackline.spark.planner` reads requests from standard input, one JSON object per line, and
writes a reply to each to standard output, one per line:

    {"id": 7, "call": "initial", "query": "q"}
    {"id": 7, "ok": {"start": "committed", "v": 1}}
    {"id": 8, "call": "latest", "query": "q", "start": {"start": "committed", "v": 1}, "all": false}
    {"id": 8, "error": {"kind": "SpoolError", "code": "spool.gone", "text": "spool.gone: …"}}

The call `open` begins a query and `close` ends it; `calls` has the others. Requests of one query
are done in their order on a thread of its own, so a slow query delays no other. The end of standard
input or SIGTERM ends all queries, and then the process. SIGINT is ignored: Ctrl-C in a shell
reaches this process, too, but it is the JVM that decides whether its queries end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ackline.exceptions import AcklineError, UsageError
from ackline.spark.calls import Plan, Request, answered, argument, opened, schema
from ackline.spark.logs import log_to_stderr, share_lines
from ackline.spark.planning import StreamPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

END_SECONDS: Final = 15.0
"""Seconds that the end waits for the queries: a call may wait 10 s for a consumer, and the end of a
receiver 2 s for its events."""


class Replies:
    """The replies to a JVM, written by any thread, one per line.

    Args:
        descriptor: The file descriptor from which the JVM reads.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def give(self, number: int | None, work: Callable[[], Any]) -> None:
        """Reply with the result of `work`, or with its error."""
        try:
            reply = {"id": number, "ok": work()}
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of native code is no Exception
            reply = {"id": number, "error": _described(error)}
        line = memoryview(f"{json.dumps(reply)}\n".encode())
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._descriptor, line) :]
        except OSError:
            # Nobody reads replies any more, so the JVM is gone.
            os.kill(os.getpid(), signal.SIGTERM)


class Query:
    """An open query: its plan, and the thread that does its requests.

    Args:
        name: Its name in requests.
        planner: The planner that has it.
    """

    def __init__(self, name: str, planner: Planner) -> None:
        self.name = name
        self.plan: Plan | None = None
        self.requests: SimpleQueue[Request | None] = SimpleQueue()
        """The requests that are not done yet; None ends the query without a reply."""
        self._planner = planner
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            request = self.requests.get()
            if request is None:
                self._close()
                return
            if self._planner.is_ending:
                continue
            self._planner.replies.give(request["id"], partial(self._done, request))
            if self.plan is None:
                return

    def _done(self, request: Request) -> Any:  # noqa: ANN401 - any JSON
        if request["call"] == "open":
            return self._open(request)
        if request["call"] == "close":
            return self._close(request.get("end"))
        return None if self.plan is None else answered(self.plan, request)

    def _open(self, request: Request) -> dict[str, Any]:
        try:
            self.plan, reply = opened(request)
        except BaseException:
            self._planner.forget(self)
            raise
        self._planner.name_lines()
        return reply

    def _close(self, end: dict[str, Any] | None = None) -> None:
        plan, self.plan = self.plan, None
        try:
            if isinstance(plan, StreamPlan):
                plan.stop(end)
        finally:
            # A query of the same name may be opened as soon as the reply is there.
            self._planner.forget(self)


class Planner:
    """All open queries of a JVM.

    Args:
        replies: The replies to it.
    """

    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.is_ending = False
        self._queries: dict[str, Query] = {}
        self._lock = threading.Lock()

    def serve(self, lines: Iterable[bytes]) -> None:
        """Do the requests of all lines."""
        for line in lines:
            self._serve(line)

    def end(self) -> None:
        """End all queries: consumers are released, and receivers stopped."""
        self.is_ending = True
        with self._lock:
            left = list(self._queries.values())
        for query in left:
            query.requests.put(None)
        deadline = time.monotonic() + END_SECONDS
        for query in left:
            query.thread.join(max(0.0, deadline - time.monotonic()))

    def forget(self, query: Query) -> None:
        """Take a query off, and refuse the requests that stand behind its end."""
        with self._lock:
            self._queries.pop(query.name, None)
        while not query.requests.empty():
            request = query.requests.get()
            if request is not None:
                self._refuse(request)
        self.name_lines()

    def name_lines(self) -> None:
        """Name the open queries in the log lines of threads that belong to none of them."""
        with self._lock:
            plans = [query.plan for query in self._queries.values()]
        share_lines([plan.name for plan in plans if plan is not None])

    def _serve(self, line: bytes) -> None:
        request, number = {}, None
        try:
            request = json.loads(line)
            number = argument(request, "id", int)
            self._begin(request, argument(request, "call", str))
        except (ValueError, AttributeError, UsageError) as error:
            refusal = error if isinstance(error, UsageError) else UsageError(_UNREADABLE)
            self.replies.give(number, lambda: _raise(refusal))

    def _begin(self, request: Request, call: str) -> None:
        if call == "schema":
            work = (request["id"], lambda: schema(request))
            threading.Thread(target=self.replies.give, args=work, daemon=True).start()
            return
        name = argument(request, "query", str)
        with self._lock:
            query = self._queries.get(name)
            if query is not None and call == "open":
                raise UsageError(f"query {name!r} is open already")
            if query is None and call == "open":
                query = Query(name, self)
                query.thread.start()
                # SIGTERM may end this function anywhere: only threads that run are waited for.
                self._queries[name] = query
            if query is not None:
                query.requests.put(request)
                return
        self._refuse(request)

    def _refuse(self, request: Request) -> None:
        error = UsageError(f"there is no open query {request.get('query')!r}")
        self.replies.give(request["id"], lambda: _raise(error))


def main() -> None:
    """Plan until standard input ends or SIGTERM comes."""
    # Keys of a terminal reach this process with its JVM, which alone decides whether to end.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    # Whatever else is written to standard output goes to standard error, and breaks no reply.
    replies = Replies(os.dup(1))
    os.dup2(2, 1)
    share_lines(())
    log_to_stderr("planner")
    planner = Planner(replies)
    with suppress(SystemExit):
        planner.serve(sys.stdin.buffer)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    planner.end()


def _leave(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _raise(error: Exception) -> None:
    raise error


def _described(error: BaseException) -> dict[str, str | None]:
    """Return an error as JSON; one of a mistake in this package has its place in the text."""
    is_expected = isinstance(error, AcklineError | OSError)
    text = str(error) if is_expected else "".join(traceback.format_exception(error))
    code = getattr(error, "code", None) or None
    return {"kind": type(error).__name__, "code": code, "text": text}


_UNREADABLE: Final = "a request is a JSON object on one line"

if __name__ == "__main__":
    main()
