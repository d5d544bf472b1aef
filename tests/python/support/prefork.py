"""Runs commands of the command line as forks of one process that has imported it.

A fork takes 35 ms of processor time, a new interpreter 220 ms. Every command still is a process of
its own, with its own arguments, environment and files.

The server reads requests from the socket that is its standard input. A request is a JSON object
with the file descriptors of standard input, output and error, and a socket for the answer: the
command's process id, then its exit code, each on a line.
"""

import contextlib
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

LONGEST_REQUEST = 1 << 20


class Server:
    """The process that has imported the command line; it ends with its client."""

    def __init__(self) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen([sys.executable, __file__], stdin=theirs)
        theirs.close()

    def run(
        self,
        arguments: tuple[str, ...],
        given: bytes,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs one command to its end, like `subprocess.run` with `capture_output`."""
        request = {
            "argv": arguments,
            "environ": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
        }
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(given)
            files[0].seek(0)
            ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
            descriptors = [*(file.fileno() for file in files), theirs.fileno()]
            socket.send_fds(self.requests, [json.dumps(request).encode()], descriptors)
            theirs.close()
            ours.settimeout(timeout)
            answer = stack.enter_context(ours.makefile())
            pid = int(answer.readline())
            try:
                code = int(answer.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout) from None
            for file in files[1:]:
                file.seek(0)
            return subprocess.CompletedProcess(
                arguments, code, *(each.read() for each in files[1:])
            )


@functools.cache
def server() -> Server:
    """The server of this process."""
    return Server()


def serve(requests: socket.socket) -> None:
    """Runs each request in a fork; returns in the forks alone, as the command."""
    # Processes that watch commands are reaped by the system.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, files, *_ = socket.recv_fds(requests, LONGEST_REQUEST, 4)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become(json.loads(text), files)
            return
        for file in files:
            os.close(file)


def become(request: dict, files: list[int]) -> None:
    """Forks once more: the parent reports the command's end, the child gets ready to be it."""
    *standard, status = files
    pid = os.fork()
    if pid:
        for file in standard:
            os.close(file)
        os.write(status, f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, f"{code}\n".encode())
        os._exit(0)
    for number, file in enumerate(standard):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = ["ackline", *request["argv"]]


if __name__ == "__main__":
    from ackline.cli import main

    gc.freeze()
    serve(socket.socket(fileno=os.dup(0)))
    main()
