"""The actor's side of a Ray worker: messages in, computed as a worker thread does, outcomes out. Imported on every node."""

from __future__ import annotations

import os
import pickle
import platform
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.version import VERSION
from penstock._system.failing import attempt
from penstock._system.frames import frames_of
from penstock._system.process import current_frames
from penstock._workers.failure import Failure, dump_with_errors
from penstock._workers.pipe import not_sendable
from penstock._workers.remote import RemoteComputer, Reply, Request, Spot
from penstock._workers.sending import Keep


class About(NamedTuple):
    """An actor.

    Attributes:
        penstock, python: versions.
        node: its address, and the first digits of Ray's number of it.
        pid: its process there.
    """

    penstock: str
    python: str
    node: str
    pid: int


class Packed(NamedTuple):
    """What an actor returns. Ray keeps its arrays out of the pickle, and every process of a node maps them.

    Attributes:
        stream: the pickle of a Reply without its columns, and of the retries; or of a Failure.
        buffers: uint8 arrays that it leaves out (protocol 5).
        columns: by the number of the field, plain arrays of the reply.
    """

    stream: bytes
    buffers: Sequence[Any]
    columns: dict[int, Any]


class RayActor:
    """Computes requests. One thread computes; another one answers questions meanwhile."""

    def __init__(self, name: str, index: int) -> None:
        """Begin with nothing to compute."""
        import ray
        from ray import cloudpickle  # it comes with Ray, the same on every node

        node = f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"
        self._about = About(VERSION, platform.python_version(), node, os.getpid())
        self._words = f"{name} on node {node}, process {os.getpid()}"
        self._pickler: type[pickle.Pickler] = cloudpickle.Pickler
        self._computer = RemoteComputer(self._words, index, _nobody)
        self._computer.fix = (
            "install their modules on every node, or send them along: ps.Ray(runtime_env={'working_dir': '.'}), or "
            "ray.cloudpickle.register_pickle_by_value(module)"
        )
        self._retries: list[bytes] = []
        self._thread: int | None = None
        np.random.seed()  # a worker that Ray forked would draw the same numbers as its siblings

    def about(self) -> About:
        """Return what is known before anything is read."""
        return self._about

    def begin(self, stages: Sequence[Any], files: Sequence[tuple[str, int]]) -> bytes | list[str]:
        """Compute `stages` from now on: a reference to (pickle, buffers).

        Returns:
            Which of `files` (path, bytes) are missing here, or have another size; or the pickle of a Failure.
        """
        import ray

        missing = [path for path, num_bytes in files if attempt(os.path.getsize, path) != num_bytes]
        if missing:
            return missing
        try:
            stream, buffers = ray.get(stages[0])
            self._computer.begin(lambda: pickle.loads(stream, buffers=buffers), _pause, self._note_retry)
        except BaseException as error:
            return self._failure(error)
        return []

    def compute(self, data: bytes) -> Packed:
        """Compute the request that `data` is the pickle of."""
        self._thread, self._retries = threading.get_ident(), []
        try:
            request: Request = pickle.loads(data)
            return self._computer.answer(request, self._parcel, partial(self._dumps, keep=None))
        except BaseException as error:
            return Packed(self._failure(error), (), {})
        finally:
            self._thread = None

    def announce(self, data: bytes) -> Iterator[int | Packed]:
        """Give each row of a request before it is computed, and at last what `compute` returns. A row is sent before it is computed."""
        rows: queue.SimpleQueue[int | Packed] = queue.SimpleQueue()
        go_on = threading.Semaphore(0)

        def announce_row(row: int) -> None:
            rows.put(row)
            go_on.acquire()

        self._computer.context.announce_row = announce_row
        threading.Thread(target=lambda: rows.put(self.compute(data)), name="penstock-rows", daemon=True).start()
        while not isinstance(row := rows.get(), Packed):
            yield row
            go_on.release()
        self._computer.context.announce_row = _nobody
        yield row

    def spot(self) -> Spot:
        """Return where the actor is."""
        return self._computer.spot()

    def calls(self) -> list[tuple[str, int, str]]:
        """Return the Python calls of what is computed, innermost last: file, line and function."""
        frames = frames_of(current_frames().get(self._thread or 0))
        return [(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) for frame in frames][::-1]

    def _parcel(self, reply: Reply) -> Packed:
        columns = {number: array for number, array in enumerate(reply.columns) if array is not None and not array.dtype.hasobject}
        rest = [None if number in columns else array for number, array in enumerate(reply.columns)]
        buffers: list[pickle.PickleBuffer] = []
        try:
            stream = self._dumps((reply._replace(columns=rest), self._retries), buffers.append)
        except Exception as error:
            raise not_sendable(reply, error, self._words) from error
        return Packed(stream, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers], columns)

    def _failure(self, error: BaseException) -> bytes:
        return pickle.dumps(Failure.of(error, self._pickler), protocol=5)

    def _note_retry(self, *what: Any) -> None:
        self._retries.append(self._dumps(what, None))

    def _dumps(self, value: object, keep: Keep | None) -> bytes:
        return dump_with_errors(value, keep, where=self._words, pickler=self._pickler)


def _nobody(row: int) -> None:
    """Announce nothing."""


def _pause(seconds: float) -> bool:
    time.sleep(seconds)  # a feed that ends kills the actor
    return False
