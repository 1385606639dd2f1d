"""A child that is a fresh interpreter: it imports nothing but what its function needs, and never the file that is run.

It gets the search path, the folder, the environment and the options of the interpreter as they are when it starts. Python's fork server
has those of the moment when the first child of the program was started, and its `spawn` imports the program.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock._workers.entry import ChildSetup, run_as_child
from penstock._workers.pipe import Pipe, pickled
from penstock._workers.sending import dumps_to_worker

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "RAYON_NUM_THREADS")
"""Variables by which native libraries size their pools of threads when they are loaded."""

_CODE = "import sys; sys.path[:] = sys.argv[5:]; from penstock._workers.executed import main; main()"
UNKNOWN = 255
"""The exit status that nobody knows, as multiprocessing says it."""
_LOOK_S = 0.01


def pools_here(otherwise: str | None = None) -> dict[str, Any]:
    """Return the variables as they are here, or something else for one that is not set."""
    return {name: os.environ.get(name, otherwise) for name in POOLS}


def set_pools(values: Mapping[str, str | None]) -> None:
    """Set the variables, for libraries that are loaded later in this process; None is one that is not set."""
    for name, value in values.items():
        os.environ.pop(name, None)
        os.environ.update({} if value is None else {name: value})


class Executed:
    """An interpreter that was started, as `Child` sees a process.

    Attributes:
        pid: of the process.
        exitcode: the exit status, minus the number of the signal that killed it; None while it runs or nobody has looked.
    """

    def __init__(self, descriptors: Sequence[int], forks: bool) -> None:
        """Start it with its ends of the pipe and the lifeline.

        Raises:
            OSError: it cannot be started.
        """
        import subprocess
        from multiprocessing import spawn

        options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        numbers = map(str, (*descriptors, os.getpid(), int(forks)))
        folder, paths = None, [one for one in sys.path if isinstance(one, str)]
        try:
            os.getcwd()
            paths = list(map(os.path.abspath, paths))
        except FileNotFoundError:  # it is gone, and Python 3.13 imports NumPy in no such folder
            folder, paths = os.sep, list(filter(os.path.isabs, paths))
        self._process = subprocess.Popen(
            [spawn.get_executable(), *options, "-c", _CODE, *numbers, *paths],
            cwd=folder,
            pass_fds=descriptors,
            # A pool of one thread has none to lose in a fork (one of GNU OpenMP, once used, hangs in the copy). Workers set their share.
            env={**os.environ, **dict.fromkeys(POOLS, "1")},
        )
        self.pid = self._process.pid
        self.exitcode: int | None = None

    @staticmethod
    def message(target: Callable[..., object], args: tuple[Any, ...], name: str) -> bytes:
        """Return the first message to it: what it is, and what it runs.

        Raises:
            SpecError: an argument cannot be pickled.
        """
        from multiprocessing import current_process, process

        given = {
            "name": name,
            "authkey": bytes(current_process().authkey),
            "sys_argv": sys.argv,
            "orig_dir": vars(process)["ORIGINAL_DIR"],
        }
        return pickled((given, pickled((target, args), f"an argument of {name}", dumps_to_worker)), name)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for its end and take its exit status. Without a pidfd, it is looked for every 10 ms."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.exitcode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:  # the program has reaped it
                pid, code = self.pid, UNKNOWN
            if pid:
                self.exitcode = self._process.returncode = code
            elif deadline is not None and time.monotonic() >= deadline:
                return
            else:
                time.sleep(_LOOK_S)

    def close(self) -> None:
        """Let go of it."""


class _Coming:
    """The function and its arguments, which come by the pipe as the first message."""

    def open(self, pipe: Pipe) -> tuple[Callable[..., object], tuple[Any, ...]]:
        """Wait for them; read them when this process is what the parent says that it is."""
        from multiprocessing import spawn

        given, what = pipe.receive()
        spawn.prepare(given)
        return pickle.loads(what)  # type: ignore[no-any-return]


def main() -> None:
    """Be the child. What `_CODE` calls."""
    end, lifeline, parent, forks = map(int, sys.argv[1:5])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (end, lifeline):
        os.set_inheritable(descriptor, False)
    setup = ChildSetup(socket.socket(fileno=end), open(lifeline, "rb", buffering=0), parent, dies_with_thread=False, forks=bool(forks))  # noqa: SIM115
    run_as_child(setup, _Coming(), "penstock")
