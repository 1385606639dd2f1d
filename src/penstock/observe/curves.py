"""The figures of a run as curves for TensorBoard: how full queues and feeds are, and memory. 50 samples a second are taken.

It writes a point every 2 s. Event files are scalars by step, in TFRecord frames, as in TensorFlow's event.proto and summary.proto.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock._contracts.event import BatchDelivered, Event, Fill
from penstock._contracts.storage import RAW, write_all
from penstock._system.text import redacted
from penstock.errors import PlanError
from penstock.formats.features import varint
from penstock.formats.tfrecord import frame
from penstock.observe.memory import System, parts_of, this_process
from penstock.observe.stats import running_feeds
from penstock.observe.ticker import Ticked, Ticker, host_of
from penstock.queues.base import Queue

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class EventFile:
    """Append points of curves to a new event file, which `tensorboard --logdir` reads while it grows. Not thread-safe.

    Each `write` is one system call of whole records, so a reader finds every point that was written, also after a kill. In a process that
    was forked from the one that opened it, nothing is written.

    Args:
        folder: the log directory; made when it does not exist.

    Raises:
        OSError: the folder or the file cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        head = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._pid = os.getpid()
        for number in itertools.count():  # two writers of one folder, in one second, have files of their own
            self.path = Path(folder) / f"{head}.{number}.penstock"
            try:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | RAW, 0o644)
                break
            except FileExistsError:
                continue
        self.num_bytes = 0
        self._put(_event(time.time(), 0, _text(3, b"brain.Event:2")))

    def begin(self, step: int) -> None:
        """Say that a run begins at this step: readers drop what an earlier run wrote at this step and behind it.

        Raises:
            OSError: the file cannot be written.
        """
        self._put(_event(time.time(), step, _text(7, b"\x08\x01")))  # SessionLog.START

    def write(self, step: int, scalars: Sequence[tuple[str, float]]) -> None:
        """Append one point to each curve: (tag, value), at this step and the present time.

        Raises:
            OSError: the file cannot be written.
        """
        values = b"".join(_text(1, _text(1, redacted(tag).encode()) + b"\x15" + _FLOAT.pack(value)) for tag, value in scalars)
        self._put(_event(time.time(), step, _text(5, values)))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, event: bytes) -> None:
        if self._descriptor < 0 or os.getpid() != self._pid:
            return
        data = frame(event)
        self.num_bytes += len(data)
        write_all(self._descriptor, data)


def _event(wall_time: float, step: int, content: bytes) -> bytes:
    return b"\x09" + _DOUBLE.pack(wall_time) + b"\x10" + varint(step) + content


def _text(field: int, data: bytes) -> bytes:
    """Return a field that holds bytes, text or a message."""
    return bytes([field << 3 | 2]) + varint(len(data)) + data


SAMPLE_S = 0.02
"""A dip of 50 ms has two samples. A look at ten queues takes 20 us."""

_POINT_S = 2.0
_MEMORY_S = 0.25
"""How often parts of the memory are looked at, which costs up to 60 us each; a point has the most of its interval."""

_FIRST_BYTES, _BYTES_PER_S = 50_000, 950_000 / 3600
"""What a file may hold: 1 MB an hour. Points come less often where that is reached, with more than about four queues."""


class Curve:
    """Adds up the fill of one buffer between two points. A value holds until the next sample."""

    def __init__(self, fill: Fill) -> None:
        self.name, self.tag = fill.name, fill.tag
        self._last = self._lowest = fill.fraction
        self._elapsed = self._sum = self._empty = self._full = 0.0
        self.num_samples = 0
        """How many were added since the last point."""

    def add(self, fill: Fill, elapsed_s: float) -> None:
        """Add a sample, `elapsed_s` after the one before."""
        last = self._last
        self.num_samples += 1
        self._elapsed += elapsed_s
        self._sum += last * elapsed_s
        self._empty += elapsed_s if last == 0.0 else 0.0
        self._full += elapsed_s if last == 1.0 else 0.0
        self._last = fill.fraction
        self._lowest = min(self._lowest, self._last)

    def take(self) -> list[tuple[str, float]]:
        """Return the point of the interval that ends here, a value for each tag, and begin the next interval."""
        last, total = self._last, self._elapsed
        mean, empty, full = (self._sum / total, self._empty / total, self._full / total) if total else (last, last == 0, last == 1)
        point = [
            (self.tag, mean),
            (f"{self.name}/lowest", self._lowest),
            (f"{self.name}/time_empty", float(empty)),
            (f"{self.name}/time_full", float(full)),
        ]
        self._lowest = last
        self._elapsed = self._sum = self._empty = self._full = 0.0
        self.num_samples = 0
        return point


class Watched(NamedTuple):
    """A queue, a feed or an enqueuer, which is not kept alive, and what its figures are called."""

    target: weakref.ref[Any]
    name: str

    def has_ended(self) -> bool:
        """Tell whether it is closed and empty, or gone."""
        target = self.target()
        return target is None or bool(target.is_closed() and not (isinstance(target, Queue) and target.size()))

    def fills(self) -> list[Fill]:
        """Return how full its buffers are."""
        target = self.target()
        if isinstance(target, Queue):
            return [target.fill()._replace(name=self.name)]
        return [] if target is None else [fill._replace(name=f"{self.name}/{fill.name}") for fill in target.fills()]


def watched_of(target: Any, members: Sequence[str], refusal: PlanError, name: str | None = None) -> list[tuple[Watched, Any]]:
    """Return the queues, and others with some members, that were given, one or a list, each with a name.

    Raises:
        PlanError: the refusal, where there is another thing among them, or none.
    """
    targets = list(target) if isinstance(target, (list, tuple)) else [target]
    if not targets or not all(isinstance(one, Queue) or all(hasattr(one, member) for member in members) for one in targets):
        raise refusal
    return [(Watched(weakref.ref(one), its_name), one) for one, its_name in zip(targets, names_of(targets, name), strict=True)]


class Samples:
    """How full buffers are, by name, and which memory feeds and queues have, between two points. From any thread."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self._parts: dict[str, int] = {}
        self._weighed_s, self._sampled_s = -_MEMORY_S, time.monotonic()
        self._lock = threading.RLock()

    def add(self, watched: Sequence[Watched]) -> None:
        """Look at them."""
        with self._lock:
            now_s = time.monotonic()
            elapsed_s, self._sampled_s = now_s - self._sampled_s, now_s
            for fill in [fill for one in watched for fill in one.fills()]:
                curve = self.curves.get(fill.name)
                if curve is None or curve.tag != fill.tag:
                    curve = self.curves[fill.name] = Curve(fill)
                curve.add(fill, elapsed_s)
            if now_s - self._weighed_s >= _MEMORY_S:
                self._weighed_s = now_s
                for name, size in parts_of((one.name, one.target()) for one in watched).items():
                    self._parts[name] = max(size, self._parts.get(name, 0))

    def take(self) -> list[tuple[str, float]]:
        """Return the points since the last call; none where there was no buffer."""
        with self._lock:
            self.curves = {name: curve for name, curve in self.curves.items() if curve.num_samples}
            points = [value for curve in self.curves.values() for value in curve.take()]
            if points:
                points += [(f"memory/{name}_MB", size / 1e6) for name, size in self._parts.items()]
                self._parts = dict.fromkeys(self._parts, 0)
            return points


class Curves(Ticked):
    """The curves of some queues and feeds in one event file; it ends when all of them have ended, or with `close`.

    Use `tensorboard()`. From any thread. Training goes on when the file cannot be written: there is one warning, and `num_failed` counts
    the points that are missing.
    """

    def __init__(self, watched: Sequence[Watched], file: EventFile, step: Callable[[], int], system: System | None = None) -> None:
        """Begin; samples of the process come from `system`, by default from this process."""
        self._watched = list(watched)
        self._file = file
        self._step = step
        self._begun_at: int | None = None
        self._last_step = -1
        self._samples = Samples()
        self.num_failed = 0
        self._system = system or this_process()
        self._faults = self._system.sample().num_major_faults
        host = host_of([one.target() for one in watched])
        self._far = None if host is None else weakref.WeakMethod(host.samples)
        self._begin_s = time.monotonic()
        self._written_s = self._begin_s if host is None else 0.0
        try:
            self._sample()  # a queue that is closed at once has a point too
        except BaseException:  # of the function that gives the step
            file.close()
            raise
        self._ticker = Ticker("penstock-tensorboard", SAMPLE_S if host is None else _MEMORY_S, self._tick, self._end, host)

    @property
    def path(self) -> Path:
        """The event file."""
        return self._file.path

    def _tick(self) -> bool:
        self._sample()
        now_s = time.monotonic()
        allowed = _FIRST_BYTES + _BYTES_PER_S * (now_s - self._begin_s)
        if now_s - self._written_s >= _POINT_S and self._file.num_bytes <= allowed:
            self._write()
            self._written_s = now_s
        return not self._watched

    def _end(self) -> None:
        try:
            self._sample()
            self._write(is_last=True)
        finally:
            self._file.close()

    def _sample(self) -> None:
        self._watched = [one for one in self._watched if not one.has_ended()]
        if not (self._far and self._far()):
            self._samples.add(self._watched)
        if self._begun_at is None and self._samples.curves:
            self._begun_at = self._step_now()

    def _step_now(self) -> int:
        return max(0, int(self._step()))

    def _write(self, *, is_last: bool = False) -> None:
        far = self._far and self._far()
        points = far(id(self), is_last) if far else self._samples.take()
        if not points:
            return
        points += self._memory()
        step = self._step_now()
        try:
            if step < self._last_step or self._last_step < 0:
                self._file.begin(step if self._last_step >= 0 or self._begun_at is None else self._begun_at)
            self._file.write(step, points)
        except OSError as error:
            self.num_failed += 1
            if self.num_failed == 1:
                warnings.warn(f"the curves in {self.path} are cut: {error}; training goes on without them", RuntimeWarning, stacklevel=1)
        self._last_step = step

    def _memory(self) -> list[tuple[str, float]]:
        """Return the values of the memory, and begin the next interval."""
        sample = self._system.sample()
        points = [
            ("process/memory_MB", sample.process_bytes / 1e6),
            ("process/freed_MB", sample.freed_bytes / 1e6),
            ("process/swap_MB", sample.swapped_bytes / 1e6),
            ("process/major_page_faults", float(sample.num_major_faults - self._faults)),
        ]
        if sample.limit is not None:
            points.append(("cgroup/used_fraction", sample.limit[1] / max(1, sample.limit[0])))
        self._faults = sample.num_major_faults
        return points


def tensorboard(target: Any, logdir: str | Path, *, step: Callable[[], int] | None = None, name: str | None = None) -> Curves:
    """Write how full queues and feeds are to TensorBoard event files, while they are used; the training loop does not change.

    Each buffer has four curves, whose points cover 2 s: `<name>/fraction_of_<capacity>_full`, its mean fill (of a RandomShuffleQueue
    `<name>/fraction_over_<min>_of_<capacity - min>_full`), `<name>/lowest`, and the shares of the time in which it was empty and full,
    `<name>/time_empty` and `<name>/time_full`. A curve that touches zero says that the reader waits for what fills the buffer.

    `process/memory_MB` is the memory of this process (PSS), with what of it is freed and kept by the allocator, `process/freed_MB`, and
    what is swapped out, `process/swap_MB`. `process/major_page_faults` counts the page faults of an interval that had to be read from a
    disk: many of them mean that the machine swaps. `cgroup/used_fraction` is the part in use of the memory that the cgroup allows, where
    it allows only so much. `memory/slots_MB` are the batch buffers of a feed, `memory/kept_MB` batches that the training loop keeps,
    `memory/held_<stage>_MB` elements that a stage has made, and `memory/queue_<name>_MB` those in a queue, about.

    Args:
        target: a queue, a feed, or a list of them. They are not kept alive.
        logdir: the folder that `tensorboard --logdir` shows; each call writes a file of its own there.
        step: returns the training step; by default that of the one feed that runs in this process, else the number of elements that
            were dequeued.
        name: of a single target in the tags; by default the name of a queue, and "feed".

    Returns:
        What is written; `close()` ends it early. It ends by itself when all targets are closed and empty, or gone.

    Raises:
        PlanError: a target is no queue or feed.
        OSError: the file cannot be made.
    """
    refusal = PlanError(
        f"curves of {target!r}: it is no queue or feed", where="observe.tensorboard()", fix="give a penstock queue, a feed, or a list"
    )
    found = watched_of(target, ("step", "fills", "is_closed"), refusal, name)
    return Curves([one for one, _ in found], EventFile(logdir), step or _Axis([given for _, given in found]))


def names_of(targets: Sequence[Any], name: str | None = None) -> list[str]:
    """Return a name for each: a feed's is "feed", any other has one; without secrets, with a number where two would have the same."""
    names: list[str] = []
    for one in targets:
        wanted = redacted(name or str(getattr(one, "name", "feed")))
        taken = sum(other == wanted or other.startswith(f"{wanted}_") for other in names)
        names.append(f"{wanted}_{taken + 1}" if taken else wanted)
    return names


class _Axis:
    """The step of a feed: of the one among the targets, or of the one that runs, the first that is found; else what was dequeued."""

    def __init__(self, targets: Sequence[Any]) -> None:
        feeds = [weakref.ref(one) for one in targets if not isinstance(one, Queue)]
        self._feed: weakref.ref[Any] | None = feeds[0] if len(feeds) == 1 else None
        self._last = 0
        self._lock = threading.RLock()  # a signal handler may dequeue while its own thread is in here
        self._num_dequeued = 0
        for one in targets:
            if isinstance(one, Queue):
                one.add_listener(self._count)

    def __call__(self) -> int:
        if self._feed is None:
            running = running_feeds()
            self._feed = weakref.ref(running[0]) if len(running) == 1 else None
        if self._feed is None:
            return self._num_dequeued
        feed = self._feed()
        self._last = self._last if feed is None else int(feed.step)
        return self._last

    def _count(self, event: Event) -> None:
        if isinstance(event, BatchDelivered):
            with self._lock:
                self._num_dequeued += event.num_delivered
