"""What children do in the tests: functions that a fork server can import."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import threading
from typing import Any

import numpy as np

from penstock._workers.outbox import Outbox
from penstock._workers.pipe import Pipe


def echo(pipe: Pipe) -> None:
    while True:
        pipe.send(pipe.receive())


def add(pipe: Pipe, *numbers: int) -> None:
    pipe.send(sum(numbers))


def fail(pipe: Pipe, error: BaseException) -> None:
    raise error


def send_lambda(pipe: Pipe) -> None:
    pipe.send({"a": [1, lambda: 0]})


def kill_itself(pipe: Pipe, number: int) -> None:
    pipe.send("before")
    os.kill(os.getpid(), number)


def leave(pipe: Pipe, code: int) -> None:
    os._exit(code)


def compute(pipe: Pipe) -> None:
    pipe.send(os.getpid())
    while True:
        pass


def sit_in_c(pipe: Pipe) -> None:
    """Hold the interpreter in C code: no other thread of the process runs any more."""
    pipe.send(os.getpid())
    ctypes.PyDLL(None).sleep(60)


def sit_idle(pipe: Pipe) -> None:
    pipe.send(os.getpid())
    threading.Event().wait()


def wait(pipe: Pipe) -> None:
    threading.Event().wait()


def stay(pipe: Pipe) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(os.getpid())
    threading.Event().wait()


def leave_a_grandchild(pipe: Pipe) -> None:
    """End with a forked process behind it that holds copies of all its descriptors."""
    grandchild = os.fork()
    if grandchild == 0:
        threading.Event().wait(60)
        os._exit(0)
    pipe.send(grandchild)
    os.kill(os.getpid(), signal.SIGKILL)


def tell_handlers(pipe: Pipe) -> None:
    pipe.send((int(signal.getsignal(signal.SIGINT)), int(signal.getsignal(signal.SIGTERM))))  # type: ignore[arg-type]


def talk_without_end(pipe: Pipe) -> None:
    while True:
        pipe.send(bytes(4096))


def call(pipe: Pipe, function: Any) -> None:
    pipe.send(function())


def take(pipe: Pipe, value: Any) -> None:
    pipe.send(value)


def post_arrays(pipe: Pipe, num: int, size: int) -> None:
    outbox = Outbox(pipe)
    for number in range(num):
        outbox.send(np.full(size, number))
    pipe.receive()


def post_arrays_on_credit(pipe: Pipe, num: int, size: int) -> None:
    outbox = Outbox(pipe)
    credit = 2
    for number in range(num):
        while not credit:
            granted, slots = pipe.receive()
            credit += granted
            outbox.given_back(slots)
        credit -= 1
        outbox.send(np.full(size, number))


class Unreadable:
    def __init__(self) -> None:
        self.array = np.zeros(10_000)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("not to be read")


def post_unreadable(pipe: Pipe) -> None:
    outbox = Outbox(pipe)
    outbox.send(Unreadable())
    outbox.send(np.ones(10_000))
    pipe.receive()


class Vanishing:
    def __setstate__(self, state: Any) -> None:
        raise LookupError("nothing here")

    def __getstate__(self) -> int:
        return 1


def fail_at_cleanup(pipe: Pipe) -> None:
    pipe.send("begun")
    try:
        pipe.receive()
    finally:
        raise RuntimeError("the disk is full")


def loaded_here(word: str, descriptor: int) -> tuple[str, int, str]:
    """Tell the word, the process that loads, and what the file holds."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return word, os.getpid(), file.read().decode()


def give_loaded(pipe: Pipe, number: int, loaded: Any) -> None:
    pipe.send((number, loaded))


def without_loaded(pipe: Pipe, target: Any, *args: Any) -> None:
    target(pipe, *args[:-1])


def tell_pid(pipe: Pipe, loaded: Any) -> None:
    pipe.send(os.getpid())


def tell_environment(pipe: Pipe, names: Any, loaded: Any) -> None:
    pipe.send([os.environ.get(name) for name in names])


def take_in(value: Any, descriptor: int) -> Any:
    return value


def start_thread(descriptor: int) -> None:
    os.close(descriptor)
    threading.Thread(target=threading.Event().wait, name="a lasting thread", daemon=True).start()


def start_and_join_thread(descriptor: int) -> None:
    os.close(descriptor)
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()


def import_and_compute(module: str, descriptor: int) -> None:
    """Import a library, and compute with NumPy's BLAS."""
    os.close(descriptor)
    importlib.import_module(module)
    _multiply()


def compute_with(pipe: Pipe, module: str) -> None:
    """Compute with the libraries that were loaded, each with two threads."""
    from penstock._workers.remote import limit_pools

    limit_pools(2)
    _multiply()
    if module == "pyarrow.dataset":
        import pyarrow

        assert pyarrow.array(range(1000)).cast("float64").sum().as_py() == 499500
    if module == "cv2":
        import cv2

        cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.uint8), (9, 9), 0)
    pipe.send("computed")


def _multiply() -> None:
    assert (np.ones((500, 500)) @ np.ones((500, 500)))[0, 0] == 500


def tell_why_no_processes(pipe: Pipe) -> None:
    from penstock._system.process import why_no_processes

    pipe.send(why_no_processes())
