"""One shard, written by one worker: the same bytes from any worker, and however often."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock._contracts.event import ElementLost, ElementRetried, Event
from penstock._contracts.policy import Policy
from penstock._processes.failure import Failure
from penstock.errors import PenstockError
from penstock.jobs.results import Reported
from penstock.packing.columns import Column
from penstock.packing.disk import OutFile
from penstock.packing.encoders import open_encoder
from penstock.packing.folder import Folder, lock_folder
from penstock.packing.manifest import lost_record
from penstock.packing.options import PackOptions
from penstock.packing.schema import Schema
from penstock.packing.splitting import Split, for_part

__all__ = ["Task"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Task:
    """What a worker is given: everything that the bytes of a shard depend on, and where they go. Called with a shard's number.

    Attributes:
        split: the dataset.
        borders: positions where shards begin, and the end.
        names: of the files.
        options: what else decides the bytes.
        schema: the fields.
        columns: how they are written.
        policy: what is done about elements that fail.
        folder: the destination.
        run_id: of the packer's run.
        num_threads: of the feed in each worker; 0 is in line.
        traced: whether to say, beside the note, what a timeline shows.
    """

    split: Split
    borders: Sequence[int]
    names: Sequence[str]
    options: PackOptions
    schema: Schema
    columns: tuple[Column, ...]
    policy: Policy
    folder: Folder
    run_id: str
    num_threads: int
    traced: bool = False

    def __repr__(self) -> str:
        """Name what one call makes, for timelines."""
        return "shard"

    def __call__(self, shard: int) -> Any:
        """Write shard `shard`, unless it is there already, and return its note; if traced, what there is to announce with it.

        Raises:
            PackError: the packer that gave the task has ended.
            OSError: the disk is full, was taken away, or another step failed; no file stands under a final name that is not complete.
            BaseException: of an element that could not be made or written.
        """
        lock = lock_folder(self.folder.path, shared=True)
        content = _Content(self, shard)
        try:
            self.folder.check_run(self.run_id)
            note = self.folder.finished(self.names[shard])
            if note is None:
                note = self._write(shard, content)
            else:
                note = {**note, "reused": True}
            return content.reported(note) if self.traced else note
        finally:
            os.close(lock)

    def _write(self, shard: int, content: _Content) -> dict[str, Any]:
        note: dict[str, Any] = {}

        def describe(file: OutFile) -> dict[str, Any]:
            note.update(content.note(file))
            return note

        try:
            self.folder.publish(self.names[shard], content.fill, describe)
        except OSError as error:
            if isinstance(error, PenstockError):
                raise
            error.add_note(
                f"penstock: writing {self.folder.file(self.names[shard])!r}; the files that are there are complete, a rerun goes on"
            )
            raise
        return note


class _Content:
    """What goes into one shard."""

    def __init__(self, task: Task, shard: int) -> None:
        self._task, self._shard = task, shard
        self._begin, self._end = task.borders[shard], task.borders[shard + 1]
        self._lost: list[dict[str, Any]] = []
        self._events: list[Any] = []
        self._count = 0

    def fill(self, out: OutFile) -> None:
        """Make the elements and write them."""
        task = self._task
        encoder = open_encoder(task.options.format, task.columns, task.options.compression, out, self._shard)
        part = task.split.part(self._begin, self._end).map(task.schema.values, name="pack")
        fixed: dict[str, Any] = {"quarantine": None, "record": None, "replay": None, "on_error": for_part(task.policy)}
        executor: Literal["threads", "inline"] = "threads" if task.num_threads else "inline"
        with part.feed(listeners=[self._listen], executor=executor, num_workers=task.num_threads, ordered=True, **fixed) as feed:
            feed._warns_when_empty = False
            for values in feed:
                encoder.add(values)
                self._count += 1
        encoder.finish()

    def note(self, out: OutFile) -> dict[str, Any]:
        """Say what is in the file."""
        return {
            "name": self._task.names[self._shard],
            "count": self._count,
            "size": out.size,
            "sha256": out.sha256,
            "first": self._begin,
            "positions": self._end - self._begin,
            "skipped": self._lost,
        }

    def reported(self, note: dict[str, Any]) -> Reported:
        """Return a note with what a timeline shows of it."""
        keys = {"first": (0, self._begin), "last": (0, self._end - 1)} if self._begin < self._end else {}
        return Reported(note, {**keys, "num_elements": note["count"], "num_bytes": note["size"]}, self._events)

    def _listen(self, event: Event) -> None:
        if isinstance(event, ElementLost):
            self._lost.append(lost_record(event))
        if self._task.traced and isinstance(event, (ElementLost, ElementRetried)):
            self._events.append(event._replace(error=Failure.of(event.error)))  # type: ignore[arg-type]
