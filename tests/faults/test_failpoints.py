"""A worker process that ends at a named point of the library, one after the other: before, in the middle of, and behind each step.

The library knows nothing of this. A function of the pipeline is the first thing of ours that runs in a worker; it puts the point there, by
wrapping a method, and the process kills itself when it comes past. A file says that this has happened, so it happens once in a run.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from core import core
from faults.cells import EXECUTORS, check_same, reference, taken
from faults.jobs_in_workers import claimed, large_row, ragged, words

import penstock as ps
from penstock._ops import rows
from penstock._workers import arena, outbox, pipe, remote

pytestmark = [pytest.mark.usefixtures("fork_server"), pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="worker processes")]


class Point(NamedTuple):
    """A method of the library, a pipeline that comes past it, and which call of it, from the first element on, is the last."""

    owner: Any
    method: str
    kind: str
    call: int = 1


def _half_of_a_message(channel: pipe.Pipe, kind: int, payload: bytes, *_: Any) -> None:
    data = pipe._HEADER.pack(len(payload), kind) + payload
    channel._socket.send(data[: len(data) // 2])


def _half_of_a_buffer(whole: Any, start: int, data: Any) -> None:
    whole[start : start + len(data) // 2] = np.frombuffer(data, np.uint8)[: len(data) // 2]


POINTS = {
    "the rows of an item are prepared": Point(remote.RemoteComputer, "_rows", "arrays", 2),
    "an array of a batch is taken": Point(arena.ArenaView, "array", "arrays", 2),
    "rows are put into a batch": Point(rows.Rows, "put", "arrays", 2),
    "texts are collected": Point(rows.RowsElsewhere, "columns", "texts"),
    "an item is computed": Point(remote, "compute", "arrays", 2),
    "a request is answered": Point(remote._Worker, "answer", "arrays"),
    "a request is read": Point(pipe.Pipe, "receive", "arrays"),
    "a message is looked for": Point(pipe.Pipe, "take", "arrays", 2),
    "the pipe is read": Point(pipe.Pipe, "fill", "arrays"),
    "slots come back": Point(outbox.Outbox, "given_back", "ragged", 2),
    "a reply is sent": Point(outbox.Outbox, "send", "ragged"),
    "a reply is pickled": Point(outbox.Outbox, "_pickled", "ragged"),
    "a slot is made": Point(outbox.Outbox, "_fitting", "ragged"),
    "a buffer is written into a slot": Point(outbox, "_write", "ragged", 2),
    "a message is sent": Point(pipe.Pipe, "send", "ragged"),
    "bytes of a message are sent": Point(pipe.Pipe, "send_bytes", "ragged"),
    "batches are read": Point(arena.ArenaView, "loads", "above batches"),
    "batches are computed": Point(remote, "compute_batches", "above batches", 2),
}
HALFWAY = {"bytes of a message are sent": _half_of_a_message, "a buffer is written into a slot": _half_of_a_buffer}
VISITS = [(name, moment) for name in POINTS for moment in ("before", "behind", *(["in the middle"] * (name in HALFWAY)))]


class Ends:
    """Puts a point into its worker process at the first element there; the process ends at the point, once in a run."""

    def __init__(self, folder: Path, name: str, moment: str) -> None:
        self.folder, self.name, self.moment = folder, name, moment
        self.done = False

    def __call__(self, x: Any) -> Any:
        if not self.done:
            self.done = True
            _put(self.name, self.moment, self.folder)
        return x


def _put(name: str, moment: str, folder: Path) -> None:
    point = POINTS[name]
    original: Callable[..., Any] = getattr(point.owner, point.method)
    calls = itertools.count(1)

    def wrapped(*args: Any, **options: Any) -> Any:
        here = next(calls) == point.call and claimed(folder, "ended", 1)
        if here and moment == "in the middle":
            HALFWAY[name](*args, **options)
        if here and moment != "behind":
            os.kill(os.getpid(), signal.SIGKILL)
        found = original(*args, **options)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(point.owner, point.method, wrapped)


PLANS: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "arrays": lambda ds: ds.map(large_row).batch(4),
    "texts": lambda ds: ds.map(words).batch(4),
    "ragged": lambda ds: ds.map(ragged),
}


CORE = [
    ("the rows of an item are prepared", "before"),
    ("texts are collected", "before"),
    ("an item is computed", "before"),
    ("a reply is sent", "before"),
    ("a reply is sent", "behind"),
    ("a buffer is written into a slot", "in the middle"),
    ("bytes of a message are sent", "in the middle"),
    ("batches are computed", "before"),
]
"""Of each kind of pipeline, and of each moment."""


@pytest.mark.parametrize(("name", "moment"), core(VISITS, CORE))
def test_a_worker_that_ends_at_any_point_of_its_work_changes_nothing(name: str, moment: str, tmp_path: Path) -> None:
    source, ends = ps.from_source(range(64)), Ends(tmp_path, name, moment)
    if POINTS[name].kind == "above batches":
        ds, plain = source.batch(2).map(ends), source.batch(2)
    else:
        make = PLANS[POINTS[name].kind]
        ds, plain = make(source.map(ends)), make(source)
    with ds.feed(**EXECUTORS["processes"]) as feed:
        items, error = taken(feed)
    assert error is None, error
    check_same(items, reference(plain), EXECUTORS["processes"])
    assert (tmp_path / "ended-0").exists(), "no worker came past this point"
