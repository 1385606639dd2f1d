"""What jobs do in the tests: functions that a fork server can import."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps


def square(job: int) -> int:
    return job * job


def pair(job: Any) -> Any:
    return os.getpid(), job


def none(job: Any) -> None:
    return None


def nested(job: int) -> Any:
    return ps.parallel_jobs(square, range(job), 2)


def arrays(job: int) -> Any:
    return {"x": np.full(job, job, np.int16), "y": bytes(job)}


def large(job: int) -> Any:
    return np.full(3_000_000, job, np.uint8)


def total(job: Any) -> int:
    return int(job.sum())


def turn(job: tuple[str, Any]) -> Any:
    """Do what the job says; a plain value is given back."""
    word, value = job
    if word == "fail":
        raise ValueError(f"bad {value}")
    if word == "odd":
        raise Odd(value, value)
    if word == "stop":
        raise StopIteration(value)
    if word == "exit":
        sys.exit(value)
    if word == "interrupt":
        raise KeyboardInterrupt
    if word == "kill":
        os.kill(os.getpid(), value)
        time.sleep(60)  # the signal is served before this ends
    if word == "leave":
        os._exit(value)
    if word == "hold":  # until somebody writes into the FIFO
        return Path(value).read_text()
    if word == "sit in C":
        ctypes.PyDLL(None).sleep(60)
    if word == "pid":
        return os.getpid()
    if word == "lock":
        return threading.Lock()
    if word == "unreadable":
        return Unreadable()
    if word == "doomed":
        return Doomed(value)
    if word == "only once":
        return only_once(value)
    return value


def only_once(folder: str) -> str:
    """Fail, or die, until the file of the job counts enough tries; a line is added by each."""
    path = Path(folder)
    name, _, limit = path.name.partition("-")
    with path.open("a") as file:
        file.write("x")
    tries = len(path.read_text())
    if tries <= int(limit):
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(f"try {tries}")
    return f"done at try {tries}"


class Odd(Exception):
    """Cannot be pickled."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"odd {a} {b}")
        self.lock = threading.Lock()


class Unreadable:
    def __reduce__(self) -> Any:
        return (_refuse, ())

    def __call__(self, job: Any) -> Any:
        return job


def _refuse() -> None:
    raise RuntimeError("this cannot be read")


@dataclass
class Doomed:
    """Kills its process while it is pickled."""

    number: int

    def __getstate__(self) -> Any:
        os.kill(os.getpid(), self.number)
        time.sleep(60)


class DeadlyAtFirst:
    """A function that kills the first processes which read it; a line in a file counts them."""

    def __init__(self, path: Path, times: int) -> None:
        self.path, self.times = path, times

    def __call__(self, job: int) -> int:
        return job * job

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        with self.path.open("a") as file:
            file.write("x")
        if len(self.path.read_text()) <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)


# -- what workers make before they are told what to do: called with their number


def fail(number: int) -> None:
    raise ValueError(f"bad {number}")


def lock(number: int) -> Any:
    return threading.Lock()


def unreadable(number: int) -> Unreadable:
    return Unreadable()


def killed(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
