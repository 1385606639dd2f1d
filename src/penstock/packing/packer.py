"""`pack`: a dataset into shards that everybody can read, as one call."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from penstock._contracts.event import BlockDone, Event, Listener, clocks, times_since
from penstock._contracts.policy import Policy
from penstock.dataset import Dataset
from penstock.errors import PlanError, WorkerDied
from penstock.formats.sizes import size_words
from penstock.jobs import parallel_jobs
from penstock.jobs.starting import Early
from penstock.observe.trace import Trace
from penstock.packing.disk import Disk
from penstock.packing.folder import Folder, lock_folder
from penstock.packing.manifest import Manifest, found_in, read_manifest, record_of, sealed, with_notes
from penstock.packing.options import PackOptions, Watching, destination, options_of, workers_of
from penstock.packing.origin import Inputs, Origin, changed, check_apart, look, origin_of
from penstock.packing.sampling import Look, Sample, SamplePart, check_room, take_sample
from penstock.packing.shard import Task
from penstock.packing.splitting import Split, check_losses, has_positions, leaving_out, policy_of, split
from penstock.packing.stream import StreamPacking
from penstock.queues.standing import SHORT_INTERRUPTS

__all__ = ["Estimate", "Packing", "estimate", "pack"]

_Jobs = Callable[[Task, range, Listener | None], list[dict[str, Any]]]
_Looks = Callable[[], Sequence[Look | None]]

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
    packing = _packing_of(dataset, chosen, on_error)
    with SHORT_INTERRUPTS, ExitStack() as stack:
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

    def sample(self, looks: Sequence[Look | None] = ()) -> Sample:
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


def _looked(early: Early, function: bytes) -> Sequence[Look | None]:
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
    import pickle

    try:
        data = pickle.dumps(part, protocol=5)
    except Exception as error:
        raise PlanError(
            f"the dataset cannot be sent to worker processes: {type(error).__name__}: {error}",
            where="pack(executor='processes')",
            fix='give functions that stand at the top of a module (no lambda), or executor="threads"',
        ) from error
    if len(data) > _LARGEST_TASK_BYTES:
        raise PlanError(
            f"the dataset takes {len(data) / 1e6:,.0f} MB to send to each worker process: it holds its data in memory",
            where="pack(executor='processes')",
            fix='give executor="threads", or a dataset that reads files',
        )
    return data
