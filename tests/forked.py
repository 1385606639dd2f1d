"""Programs that are forked from one that has imported what they need: a start then costs 0.02 s, not 0.4 s."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock as ps

_PATH = os.pathsep.join([str(Path(ps.__file__).parents[1]), str(Path(__file__).parent)])


class Program:
    """A forked program: the leader of its own session, with its own stdout, and stderr in a file."""

    def __init__(self, requests: socket.socket, code: str, arguments: tuple[str, ...]) -> None:
        self.returncode: int | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in end()
        hear, say = os.pipe()
        self.stdout = os.fdopen(hear)
        socket.send_fds(requests, [b"."], [say, self._errors.fileno()])
        os.close(say)
        requests.sendall(json.dumps([code, arguments]).encode() + b"\n")
        self._answers = requests.makefile("rb", 0)
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Return the exit status, or None while the program runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_s: float) -> int:
        """Return the exit status as subprocess has it, when the program has ended."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired("a forked program", timeout_s, stderr=self.errors().encode())
            self.returncode = int(self._answers.readline())
        return self.returncode

    def errors(self) -> str:
        """Return what it has written to stderr."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode()

    def end(self) -> None:
        """Kill it if it runs, and give back what it holds here."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait(60)
        self.stdout.close()
        self._errors.close()
        self._answers.close()


class Forks:
    """A warm program, which runs one forked program after the other."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests

    @contextmanager
    def program(self, code: str, *arguments: str) -> Iterator[Program]:
        """Run code in a fork, as `python -c code` does; kill it when the block is left."""
        program = Program(self._requests, code, arguments)
        try:
            yield program
        finally:
            program.end()


@contextmanager
def forks(begin: str, **environment: str) -> Iterator[Forks]:
    """Start a program that runs `begin`, which may leave no thread, and then forks others."""
    ours, theirs = socket.socketpair()
    code = f"{begin}\nimport forked\nexec(forked.next_program({theirs.fileno()}))"
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": _PATH, **environment},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        ) as warm,
    ):
        theirs.close()
        try:
            yield Forks(ours)
        finally:
            ours.shutdown(socket.SHUT_RDWR)
    assert warm.returncode == 0


def next_program(fd: int) -> str:
    """Serve requests in the warm program; return the code of one in its fork."""
    gc.collect()
    gc.freeze()  # else the end of each program collects what the imports made: 0.1 s
    requests = socket.socket(fileno=fd)
    lines = requests.makefile("rb", 0)
    while True:
        begun, streams, _, _ = socket.recv_fds(requests, 1, 2)
        if not begun:
            os._exit(0)
        code, arguments = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            os.setsid()
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
                os.close(stream)
            lines.close()
            requests.close()
            sys.argv[1:] = arguments
            return str(code)
        for stream in streams:
            os.close(stream)
        requests.sendall(b"%d\n" % pid)
        requests.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
