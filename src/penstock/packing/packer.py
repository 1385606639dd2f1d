"""`pack`: a dataset into shards that everybody can read, as one call.

A shard has the same bytes from any worker, and however often. Of a stream, one reader makes the elements in order, and writes one file
behind the other.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Literal

from penstock._contracts.event import BlockDone, ElementLost, ElementRetried, Event, Listener, clocks, times_since
from penstock._contracts.failing import add_note, text_of
from penstock._contracts.policy import Policy, Skip, final
from penstock._contracts.process import refuse_on_windows
from penstock._plan.base import length_of
from penstock._processes.failure import Failure
from penstock.dataset.builder import Dataset
from penstock.errors import PackError, PenstockError, PlanError, SourceError, SpecError, WorkerDied
from penstock.formats.sizes import size_words
from penstock.jobs import parallel_jobs
from penstock.jobs.results import Reported
from penstock.jobs.starting import Early
from penstock.observe.trace import Trace
from penstock.packing.disk import (
    Disk,
    Folder,
    Inputs,
    NoDisk,
    Origin,
    OutFile,
    changed,
    check_apart,
    lock_folder,
    look,
    origin_of,
    origin_of_stream,
)
from penstock.packing.encoders import open_encoder
from penstock.packing.manifest import Manifest, found_in, lost_record, read_manifest, record_of, sealed, with_notes
from penstock.packing.options import PackOptions, Watching, destination, options_of, workers_of
from penstock.packing.sampling import (
    MOST,
    PositionsLook,
    Sample,
    SamplePart,
    Split,
    check_ends,
    check_losses,
    check_room,
    declared_of,
    encoded_bytes,
    for_part,
    has_positions,
    leaving_out,
    policy_of,
    split,
    take_sample,
)
from penstock.packing.schema import FieldColumn, Schema, alike, columns_of, schema_of

_Looks = Callable[[], Sequence[PositionsLook | None]]

_WHERE = "pack()"
_LARGEST_TASK_BYTES = 64 << 20


def pack(
    dataset: Any,
    dest: str | os.PathLike[str],
    *,
    num_workers: int | Literal["auto"] = "auto",
    executor: Literal["processes", "threads"] = "processes",
    on_error: Policy | None = None,
    progress: bool | Literal["always"] = False,
    trace: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Manifest:
    """Write all elements of a dataset to files that need no more work when they are read: TFRecord, WebDataset tar or Parquet.

    Shard s holds a run of the dataset's positions, in its order, and nothing but dataset, options and s decides its bytes. So the files are
    the same for any number of workers, and after a kill: the same call finds the shards that are finished and makes the rest. A file has
    its final name when all of it is on the disk; the manifest, with fields, counts, sizes, hashes and what was left out, is written last.

    Blocks until all is done. May be called from any thread. Functions see some elements more than once: up to 64 are made before as a
    sample, by worker processes; where one of them fails or cannot be sent, with threads, and where there is a manifest, all in this
    process. With processes a program calls it under
    `if __name__ == "__main__":`, and the functions of the dataset stand at the top of a module, as for `ps.parallel_jobs`.

    Args:
        dataset: it has an end. Elements are dicts, tuples or single values of numbers, arrays, bytes and str, the same fields in each.
            Filter, flat_map, unbatch and maps above positions run in the workers. Anything else whose elements only reading tells (a
            stream, compressed TFRecord; take, batch or shuffle above a filter) is read once, by threads of this process, and cut into
            shards of `shard_bytes`; a rerun reads it again from its beginning.
        dest: a folder; it is made when it is not there.
        num_workers: how many at once; "auto" is one per available CPU. With fewer shards than workers, there is a process for each shard,
            with several threads.
        executor: "processes", or "threads": in this process, for functions that cannot be sent to others and for arrays in memory.
        on_error: what is done about an element that fails, or cannot be written: the dataset's own policy by default. `ps.Skip(...)` leaves
            it out and notes it in the manifest. A count as limit is for all shards together, and each stops at it; a rate
            is judged at the end.
        progress: True draws a bar on stderr if that is a terminal; "always" writes elsewhere too, a line every 10 s.
        trace: a file for a timeline, as `ps.observe.trace` writes it: a row for each worker with a span for each shard, and marks for
            retries, skipped elements and errors; the sample.
        **options: what is written, as in `penstock.packing.PackOptions`: format, compression, num_shards, shard_bytes, shuffle, variants,
            name, version.

    Returns:
        The manifest.

    Raises:
        PlanError: an option cannot be used, or the dataset has no end.
        SpecError: the elements differ in their fields, or have one that cannot be written; the dataset cannot be sent to a process.
        SourceError: there is no element; an input file changed meanwhile.
        PackError: another packer is at work in the folder; it holds something else; the disk has too little room.
        OSError: the disk is full, or a file cannot be written.
        TooManySkipped: more elements failed than the policy allows.
        WorkerDied: a worker was killed.
        MissingExtra: Parquet without pyarrow.
        BaseException: what a function of the dataset raised, with a note that names stage, element and shard; KeyboardInterrupt.
    """
    chosen, folder, count, disk = options_of(options), destination(dest), workers_of(num_workers), Disk()
    if executor not in ("processes", "threads"):
        raise PlanError(f"executor={executor!r} is not known", where=_WHERE, fix='give "processes" or "threads"')
    refuse_on_windows(_WHERE, "pack on another machine, whose files this one can read")
    packing = _packing_of(dataset, chosen, on_error)
    with ExitStack() as stack:
        timeline = None if trace is None else stack.enter_context(Trace(os.fspath(trace)))
        watching = Watching(progress=progress, timeline=timeline)
        return packing.run(folder, num_workers=count, executor=executor, watching=watching, disk=disk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What packing would give, by a sample of the elements. None: how many elements a stream has shows at its end.

    Attributes:
        count: elements; exact where nothing is filtered or skipped.
        size: bytes of all files.
        num_shards: files.
        seconds: how long it would take, by the time of the sample and as many CPUs as there are workers. With fewer shards than workers
            Python code takes longer: a process has several threads then, of which one at a time runs it.
        mean_bytes: of an element.
        element_s: how long one element takes in one thread.
        num_sampled: elements that were looked at.
        fields: how they would be written, a line each.
    """

    count: int | None
    size: int | None
    num_shards: int | None
    seconds: float | None
    mean_bytes: float
    element_s: float
    num_sampled: int
    fields: tuple[str, ...]


def estimate(dataset: Any, *, num_workers: int | Literal["auto"] = "auto", on_error: Policy | None = None, **options: Any) -> Estimate:
    """Say what `pack` with these arguments would write, and how long it would take. Makes at most 64 elements, writes nothing.

    Raises:
        PlanError, SpecError, SourceError, MissingExtra, BaseException: as `pack`.
    """
    chosen, count = options_of(options), workers_of(num_workers)
    packing = _packing_of(dataset, chosen, on_error)
    sample = packing.sample()
    num_positions = packing.split.num_positions if isinstance(packing, Packing) else sample.total_count or 0
    return Estimate(
        count=sample.total_count,
        size=sample.total_bytes,
        num_shards=None if sample.total_bytes is None else chosen.count_of(sample.total_bytes, num_positions),
        seconds=None if sample.total_count is None else sample.element_s * sample.total_count / count,
        mean_bytes=sample.mean_bytes,
        element_s=sample.element_s,
        num_sampled=sample.num_sampled,
        fields=tuple(column.words() for column in sample.columns),
    )


def _packing_of(dataset: Any, options: PackOptions, on_error: Policy | None) -> Packing | StreamPacking:
    """Return what packs a dataset.

    Raises:
        PlanError: it is none, has no end, or is a stream that the options are not for.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where=_WHERE, fix="wrap it with ps.from_source or ps.from_arrays")
    root = leaving_out(dataset._root)
    kind = Packing if has_positions(root) else StreamPacking
    return kind(Dataset(root, dataset._options), options, on_error)


class Packing:
    """A dataset with positions, with all that decides the bytes. Nothing runs before `run` or `sample`."""

    def __init__(self, dataset: Dataset, options: PackOptions, on_error: Policy | None) -> None:
        """Check.

        Args:
            dataset: it has positions; see `has_positions`.
            options: what else decides the bytes.
            on_error: as for `pack`.

        Raises:
            PlanError: as `pack`.
        """
        self.options = options
        self.split: Split = split(dataset, variants=options.variants, shuffle=options.shuffle)
        self.policy = policy_of(self.split.options, on_error)

    def sample(self, looks: Sequence[PositionsLook | None] = ()) -> Sample:
        """Look at some elements; see `take_sample`."""
        return take_sample(self.split, self.options, self.policy, looks)

    def run(self, dest: str, *, num_workers: int, executor: Any, watching: Watching, disk: Disk) -> Manifest:
        """Pack to a folder; see `pack`."""
        with ExitStack() as stack:
            looks, jobs = self._jobs(dest, num_workers, executor, stack)
            check_apart(self.split.base, dest)
            inputs = look(self.split.base)  # before anything is read
            return self._packed(inputs, dest, num_workers, looks, jobs, watching, disk)

    def _jobs(self, dest: str, count: int, executor: Any, stack: ExitStack) -> tuple[_Looks, _Jobs]:
        """Return what looks at the sample and what does a list of jobs. Processes for a first run start at once, and do both."""
        if executor == "threads":
            return tuple, partial(_in_threads, count)
        most = min(count, self.options.num_shards or count, max(1, self.split.num_positions))
        part = SamplePart(self.split, self.policy, most)
        if not self.split.num_positions or os.path.lexists(os.path.join(dest, self.options.manifest_name())):
            return tuple, partial(_late, part, count)
        function = _sendable(part)
        early = stack.enter_context(Early(most))
        return partial(_looked, early, function), early.jobs

    def _packed(self, inputs: Inputs, dest: str, count: int, looks: _Looks, jobs: _Jobs, watching: Watching, disk: Disk) -> Manifest:
        origin = origin_of(self.split.whole(), inputs, self.options.version)
        begin = clocks()
        sample = self.sample(looks())
        listener = watching.listener("sample")
        if listener is not None:
            listener(BlockDone("sample", 0, *times_since(begin), sample.num_sampled, chunk=(0, 0)))
        num_bytes = sample.total_bytes or 0
        num_shards = self.options.count_of(num_bytes, self.split.num_positions)
        record = self._record(sample, num_shards)
        names = self.options.file_names(num_shards)
        folder = Folder(dest, disk)
        disk.make_folder(dest)
        lock = lock_folder(dest, shared=False)
        try:
            done = _finished(folder, self.options, record, origin)
            if done is None:
                check_room(dest, num_bytes - _written(folder, names))
                task = self._task(folder, sample, names, record, origin)
                notes = _notes(task, count, jobs, watching)
                if (error := changed(self.split.base, inputs)) is not None:
                    raise error
                lost = [lost for note in notes for lost in note["skipped"]]
                check_losses(self.policy, lost, sum(note["count"] for note in notes), self.split.num_positions)
                folder.write_origin(self.options.manifest_name(), origin)
                folder.write_manifest(self.options.manifest_name(), sealed(with_notes(record, notes, [])))
            if done is None or folder.is_of(record, origin):
                folder.clear()
            return done or read_manifest(folder.file(self.options.manifest_name()))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                error.add_note(
                    f"penstock: {size_words(_written(folder, names))} are in finished files; by the sample all of them would take about "
                    f"{size_words(num_bytes)}"
                )
            raise
        finally:
            os.close(lock)

    def _record(self, sample: Sample, num_shards: int) -> dict[str, Any]:
        """Return what the bytes depend on, as it stands in the manifest."""
        counts = {"num_shards": num_shards, "num_positions": self.split.num_positions}
        return record_of(self.options, self.policy, self.split.whole(), sample.columns, counts)

    def _task(self, folder: Folder, sample: Sample, names: list[str], record: dict[str, Any], origin: Origin) -> Task:
        run_id = os.urandom(8).hex()
        folder.prepare({**record, "id": run_id}, names, origin)
        return Task(
            split=self.split,
            borders=self.split.borders(len(names)),
            names=names,
            options=self.options,
            schema=sample.schema,
            columns=sample.columns,
            policy=self.policy,
            folder=folder,
            run_id=run_id,
            num_threads=0,
        )


def _looked(early: Early, function: bytes) -> Sequence[PositionsLook | None]:
    try:
        return early.ahead(function)
    except WorkerDied as died:
        died.add_note("penstock: it was asked for elements of the sample, of which up to 64 are made first; nothing was written yet")
        raise


def _finished(folder: Folder, options: PackOptions, record: dict[str, Any], origin: Origin) -> Manifest | None:
    """Return the manifest of an earlier run that wrote the same of the same; None when there is none, or shards of it are missing.

    Raises:
        PackError: there is one of something else, or its files are not what they were.
    """
    manifest = found_in(folder, options, record, origin)
    if manifest is not None and manifest.missing():
        folder.take_back(record, manifest.notes(), origin)
        return None
    return manifest and replace(manifest, was_there=True)


def _written(folder: Folder, names: list[str]) -> int:
    """Return how many bytes of the shards are there already."""
    return sum(os.path.getsize(path) for path in map(folder.file, names) if os.path.isfile(path))


def _notes(task: Task, count: int, jobs: _Jobs, watching: Watching) -> list[dict[str, Any]]:
    """Have all shards written, and return their notes in order."""
    num_shards = len(task.names)
    threads = -(-count // min(count, num_shards))
    task = replace(task, num_threads=threads if threads > 1 else 0, traced=watching.timeline is not None)
    listener = watching.listener("pack", by_worker=True)
    with watching.bar("packing", task.split.num_positions) as advance:
        return jobs(task, range(num_shards), listener if advance is None else _Counting(task.borders, advance, listener))


class _Counting:
    """A listener that moves a bar by the positions of each shard that is done. Called from any thread."""

    def __init__(self, borders: Sequence[int], advance: Callable[[float], object], then: Listener | None) -> None:
        self._borders, self._advance, self._then = borders, advance, then
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        if isinstance(event, BlockDone) and event.chunk is not None:
            shard = event.chunk[1]
            with self._lock:
                self._advance(self._borders[shard + 1] - self._borders[shard])
        if self._then is not None:
            self._then(event)


def _in_threads(count: int, task: Task, shards: range, listener: Listener | None) -> list[dict[str, Any]]:
    return parallel_jobs(task, shards, count, executor="threads", trace=listener)


def _late(part: SamplePart, count: int, task: Task, shards: range, listener: Listener | None) -> list[dict[str, Any]]:
    """Do what is left of an earlier run: perhaps nothing, so that no process starts before it is known."""
    _sendable(part)
    return parallel_jobs(task, shards, count, trace=listener)


def _sendable(part: SamplePart) -> bytes:
    """Return the pickle of a dataset; refuse to send large arrays to each worker.

    Raises:
        PlanError: the dataset is too large, or cannot be sent.
    """
    from penstock._processes.sending import dumps_to_worker

    try:
        data = dumps_to_worker(part)
    except Exception as error:
        raise PlanError(
            f"the dataset cannot be sent to worker processes: {type(error).__name__}: {error}",
            where="pack(executor='processes')",
            fix='open files, locks and clients inside the functions, or give executor="threads"',
        ) from error
    if len(data) > _LARGEST_TASK_BYTES:
        raise PlanError(
            f"the dataset takes {len(data) / 1e6:,.0f} MB to send to each worker process: it holds its data in memory",
            where="pack(executor='processes')",
            fix='give executor="threads", or a dataset that reads files',
        )
    return data


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
    columns: tuple[FieldColumn, ...]
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


_Jobs = Callable[[Task, range, Listener | None], list[dict[str, Any]]]


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


_LEFT_FREE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """A file without a name: its path, and its note."""

    path: str
    note: dict[str, Any]


class StreamPacking:
    """A dataset whose elements only reading tells, with all that decides the bytes. Nothing runs before `run` or `sample`.

    It is read by this process, from its beginning, in the threads of one feed. Shards get their names when all are complete, so an
    interrupted run leaves none, and a rerun begins again. A rerun for a finished folder reads the stream, and compares what it would write.
    """

    def __init__(self, dataset: Dataset, options: PackOptions, on_error: Policy | None) -> None:
        """Check.

        Raises:
            PlanError: it has no end; an option is for datasets with positions.
        """
        check_ends(dataset._root)
        if options.shuffle is not None:
            raise PlanError(
                "the input can only be read from its beginning, and shuffle= reads it in any order",
                where="pack(shuffle=...)",
                fix="pack it as it is; what was packed can be shuffled when it is read, or packed again with shuffle=",
            )
        if (options.num_shards or 1) > 1:
            raise PlanError(
                "the input can only be read from its beginning, and how many elements belong to each of several shards shows at its end",
                where=f"pack(num_shards={options.num_shards})",
                fix="give shard_bytes=, or pack what was packed again with num_shards=",
            )
        self.options = options
        self.policy = policy_of(dataset._options, on_error)
        self._dataset = dataset if options.variants == 1 else dataset.repeat(options.variants)
        self._lost: list[dict[str, Any]] = []

    def sample(self) -> Sample:
        """Look at the first elements, 64 at most, in the caller's thread."""
        begun_s = time.perf_counter()
        with self._opened(0, []) as elements:
            first = list(islice(elements, MOST + 1))
        whole, first = len(first) <= MOST, first[:MOST]
        schema, columns = self._columns(first)
        rows = list(self._rows(schema, first))
        num_bytes = encoded_bytes(columns, self.options, rows)
        return Sample(
            schema=schema,
            columns=columns,
            total_bytes=num_bytes if whole else None,
            total_count=len(rows) if whole else None,
            mean_bytes=num_bytes / max(1, len(rows)),
            element_s=(time.perf_counter() - begun_s) / max(1, len(rows)),
            num_sampled=len(first),
        )

    def run(self, dest: str, *, num_workers: int, executor: Any, watching: Watching, disk: Disk) -> Manifest:
        """Pack to a folder; see `pack`."""
        root = self._dataset._root
        check_apart(root, dest)
        inputs = look(root)
        folder, name = Folder(dest, disk), self.options.manifest_name()
        origin, record = origin_of_stream(inputs), record_of(self.options, self.policy, root)
        disk.make_folder(dest)
        lock = lock_folder(dest, shared=False)
        try:
            earlier = found_in(folder, self.options, record, origin)
            if earlier is None:
                folder.prepare(record, self.options.file_names(1), origin)
            elif earlier.missing():
                raise self._other(dest, earlier.missing()[0], "restore that file, or remove what is there and pack the stream again")
            try:
                shards, columns = self._shards(folder.work, disk if earlier is None else NoDisk(), num_workers, watching)
                self._check(shards, changed(root, inputs))
            except BaseException as error:
                if earlier is None:
                    _clear(folder, error)
                raise
            full = self._full(shards, columns)
            if earlier is None:
                folder.give_names([shard.path for shard in shards], [note["name"] for note in full["shards"]])
                folder.write_origin(name, origin)
                folder.write_manifest(name, sealed(full))
            elif earlier.record["sha256"] != sealed(full)["sha256"]:
                what = "the elements of the stream, or what is written of them, have changed"
                raise self._other(dest, what, "give another folder or name=, or remove what is there")
            if folder.is_of(record, origin):
                folder.clear()
            return read_manifest(folder.file(name)) if earlier is None else replace(earlier, was_there=True)
        finally:
            os.close(lock)

    def _other(self, dest: str, what: str, fix: str) -> PackError:
        return PackError(
            f"the folder holds a packed dataset {self.options.name!r} already, and {what}", where=f"{_WHERE} to {dest!r}", fix=fix
        )

    def _shards(self, folder: str, disk: Disk, num_workers: int, watching: Watching) -> tuple[list[_Shard], tuple[FieldColumn, ...]]:
        """Read the stream and write it to files without a name."""
        listener = watching.listener("pack")
        with ExitStack() as stack:
            total = length_of(self._dataset._root)
            advance = stack.enter_context(watching.bar("packing", None if total is None else int(total)))
            elements = stack.enter_context(self._opened(num_workers, [] if listener is None else [listener]))
            first = list(islice(elements, MOST))
            schema, columns = self._columns(first)
            rows = self._rows(schema, chain(first, elements))
            if advance is not None:
                rows = _told(rows, advance)
            shards: list[_Shard] = []
            for row in rows:
                if not isinstance(disk, NoDisk):
                    _check_left(folder, sum(shard.note["size"] for shard in shards))
                path = os.path.join(folder, f"{self.options.name}-{len(shards)}.part")
                shards.append(self._shard(OutFile(disk, path), columns, len(shards), chain([row], rows)))
            return shards, columns

    def _shard(self, out: OutFile, columns: Sequence[FieldColumn], number: int, rows: Iterator[Sequence[Any]]) -> _Shard:
        """Write a file, up to the size of a shard."""
        most = None if self.options.num_shards == 1 else self.options.aimed_bytes()
        count = 0
        try:
            encoder = open_encoder(self.options.format, columns, self.options.compression, out, number)
            for row in rows:
                encoder.add(row)
                count += 1
                if most is not None and out.size >= most:
                    break
            encoder.finish()
            out.seal()
        except OSError as error:
            add_note(error, f"penstock: writing {out.path!r}; nothing of it stays, as a stream is packed from its beginning")
            raise
        finally:
            out.close()
        return _Shard(path=out.path, note={"count": count, "size": out.size, "sha256": out.sha256, "positions": count, "skipped": []})

    def _full(self, shards: Sequence[_Shard], columns: Sequence[FieldColumn]) -> dict[str, Any]:
        """Return the manifest."""
        notes, first = [], 0
        for shard, name in zip(shards, self.options.file_names(len(shards)), strict=True):
            notes.append({**shard.note, "name": name, "first": first})
            first += shard.note["count"]
        counts = {"num_shards": len(shards), "num_positions": first + len(self._lost)}
        return with_notes(record_of(self.options, self.policy, self._dataset._root, columns, counts), notes, self._lost)

    def _check(self, shards: Sequence[_Shard], error: SourceError | None) -> None:
        if error is not None:
            raise error
        check_losses(self.policy, self._lost, sum(shard.note["count"] for shard in shards))

    @contextmanager
    def _opened(self, num_workers: int, listeners: list[Listener]) -> Iterator[Iterator[Any]]:
        """Give the elements; those that the policy leaves out are noted."""
        self._lost = []

        def listen(event: Event) -> None:
            if isinstance(event, ElementLost):
                self._lost.append(lost_record(event))

        given = self._dataset._options
        fixed: dict[str, Any] = {"ordered": True, "quarantine": None, "record": None, "replay": None, "on_error": for_part(self.policy)}
        if given.executor != "inline" and given.num_workers != 0:
            fixed |= {"executor": "threads" if num_workers else "inline", "num_workers": num_workers}
        with self._dataset.feed(listeners=[listen, *listeners], **fixed) as feed:
            feed._warns_when_empty = False
            yield iter(feed)

    def _columns(self, first: Sequence[Any]) -> tuple[Schema, tuple[FieldColumn, ...]]:
        """Find the fields from the first elements.

        Raises:
            SourceError: there is no element.
            SpecError: they differ in their fields, or have some that cannot be written; it names the first.
        """
        if not first:
            raise SourceError("no element is left to write", where=_WHERE, fix="look at the filter, and at what on_error leaves out")
        declared, usual = declared_of(self._dataset._root), alike(first)
        taken = usual if self._skips_what_differs() else first
        try:
            schema = schema_of(taken, declared)
        except SpecError:
            if len(usual) < len(first):
                list(self._rows(schema_of(usual, declared), first))
            raise
        return schema, columns_of(schema, self.options.format, schema.values(taken[0]))

    def _skips_what_differs(self) -> bool:
        last = final(self.policy)
        return isinstance(last, Skip) and issubclass(SpecError, last.errors)

    def _rows(self, schema: Schema, elements: Iterable[Any]) -> Iterator[list[Any]]:
        """Give what is written of each element; what does not fit the fields is raised, or left out and noted."""
        for number, element in enumerate(elements):
            try:
                yield schema.values(element)
            except SpecError as error:
                where = f"element {number} of {self._dataset._root.line()}"
                if not self._skips_what_differs():
                    add_note(error, f"penstock: {where}")
                    raise
                record = {"where": where, "stage": "pack", "error": "SpecError", "text": text_of(error)}
                self._lost.append({"key": [[0, number, 0]], **record, "retries": 0})


def _told(rows: Iterator[Any], advance: Any) -> Iterator[Any]:
    for row in rows:
        advance(1)
        yield row


def _clear(folder: Folder, error: BaseException) -> None:
    """Remove unfinished files; an error of that is a note of the error that made it necessary."""
    try:
        folder.clear()
    except OSError as other:
        add_note(error, f"penstock: and then, removing {folder.work!r}: {other}")


def _check_left(folder: str, num_bytes: int) -> None:
    """Stop before the disk is full: a stream without an end would fill it, and others need it too.

    Raises:
        PackError: less than a twentieth of it is free.
    """
    status = os.statvfs(os.path.dirname(folder))
    if status.f_bavail < _LEFT_FREE * status.f_blocks:
        raise PackError(
            f"{size_words(num_bytes)} of a stream were written, and the disk is nearly full: "
            f"{size_words(status.f_bavail * status.f_frsize)} are free",
            where=f"{_WHERE} in {os.path.dirname(folder)!r}",
            fix="make room; if the stream has no end, give it one with take(n)",
        )
