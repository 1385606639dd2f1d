"""`pack`: a dataset into shards that everybody can read, as one call."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from penstock._contracts.event import BlockDone, Listener
from penstock._contracts.policy import Policy, Skip, final
from penstock._contracts.stopwatch import clocks, times_since
from penstock._plan.describe import identity
from penstock._plan.node import Node
from penstock.dataset import Dataset
from penstock.errors import PackError, PlanError, SourceError, TooManySkipped, WorkerDied
from penstock.formats.sizes import size_words
from penstock.jobs import parallel_jobs
from penstock.jobs.starting import Early, check_may_start
from penstock.observe.trace import Trace
from penstock.packing.disk import Disk
from penstock.packing.folder import Folder, difference, lock_folder
from penstock.packing.inputs import Inputs, changed, check_apart, look
from penstock.packing.manifest import FORM, Manifest, read_manifest, sealed
from penstock.packing.options import PackOptions, destination, options_of, workers_of
from penstock.packing.origin import Origin, origin_of
from penstock.packing.positions import positioned
from penstock.packing.sampling import Look, Sample, SamplePart, check_room, take_sample
from penstock.packing.shard import Task
from penstock.packing.splitting import Split, policy_of, split
from penstock.packing.ticks import Ticker, Watching
from penstock.packing.versions import versions_of
from penstock.queues.standing import SHORT_INTERRUPTS

__all__ = ["Packing", "pack"]

_Jobs = Callable[[Task, range], list[dict[str, Any]]]
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
            Filter, flat_map, unbatch and maps above positions run in the workers. Compressed TFRecord files are counted first, and
            `from_generator(fn, fast_forward=True, length=n)` is read by each worker. Anything else whose elements only reading tells (a
            stream; take, batch or shuffle above a filter) is read once, into a file in the destination that is gone at the end: maps
            above it run in the workers, and a rerun goes on if it gives the same again.
        dest: a folder; it is made when it is not there.
        num_workers: how many at once; "auto" is one per available CPU. With fewer shards than workers, there is a process for each shard,
            with several threads.
        executor: "processes", or "threads": in this process, for functions that cannot be sent to others and for arrays in memory.
        on_error: what is done about an element that fails, or cannot be written: the dataset's own policy by default. `ps.Skip(...)` leaves
            it out and notes it in the manifest. A count as limit is for all shards together, and each stops at it; a rate
            is judged at the end.
        progress: True draws a bar on stderr if that is a terminal; "always" writes elsewhere too, a line every 10 s.
        trace: a file for a timeline, as `ps.observe.trace` writes it: a row for each worker with a span for each shard, and marks for
            retries, skipped elements and errors; the sample, and what is read before.
        **options: what is written, as in `penstock.packing.PackOptions`: format, compression, num_shards, shard_bytes, shuffle, variants,
            name.

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
    check = partial(_check_before, folder, chosen, executor, on_error)
    with SHORT_INTERRUPTS, ExitStack() as stack:
        timeline = None if trace is None else stack.enter_context(Trace(os.fspath(trace)))
        watching = Watching(progress=progress, timeline=timeline)
        ready = positioned(
            dataset, folder, on_error=on_error, variants=chosen.variants, num_threads=count, watching=watching, disk=disk, check=check
        )
        found = stack.enter_context(ready)
        packing = Packing(found.dataset, chosen, on_error, below=found.below, lost=found.lost)
        return packing.run(folder, num_workers=count, executor=executor, watching=watching, disk=disk)


def _check_before(folder: str, options: PackOptions, executor: str, on_error: Policy | None, dataset: Dataset) -> None:
    """Refuse, before a stream is read, what would be refused behind it.

    Raises:
        PenstockError, OSError: as `pack`.
    """
    manifest = os.path.join(folder, options.manifest_name())
    if os.path.lexists(manifest):
        read_manifest(manifest)
    elif executor == "processes":
        check_may_start()
        cut = split(dataset, variants=options.variants, shuffle=options.shuffle)
        _sendable(SamplePart(cut, policy_of(cut.options, on_error), 1))


class Packing:
    """A dataset with all that decides the bytes. Nothing runs before `run` or `sample`."""

    def __init__(
        self,
        dataset: Dataset,
        options: PackOptions,
        on_error: Policy | None,
        *,
        below: Node | None = None,
        lost: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Check.

        Args:
            dataset: it has positions; see `positioned`.
            options: what else decides the bytes.
            on_error: as for `pack`.
            below: the part of the plan that was run before.
            lost: records of elements that were left out there.

        Raises:
            PlanError: as `pack`.
        """
        self.options = options
        self.split: Split = split(dataset, variants=options.variants, shuffle=options.shuffle)
        self.policy = policy_of(self.split.options, on_error)
        self._below, self._lost = below, list(lost)

    def sample(self, looks: Sequence[Look | None] = ()) -> Sample:
        """Look at some elements; see `take_sample`."""
        return take_sample(self.split, self.options, self.policy, looks)

    def run(self, dest: str, *, num_workers: int, executor: Any, watching: Watching, disk: Disk) -> Manifest:
        """Pack to a folder; see `pack`."""
        with ExitStack() as stack:
            looks, jobs = self._jobs(dest, num_workers, executor, watching.listener("pack", by_worker=True), stack)
            check_apart(self.split.base, dest)
            inputs = look(self.split.base)  # before anything is read
            return self._packed(inputs, dest, num_workers, looks, jobs, watching, disk)

    def _jobs(self, dest: str, count: int, executor: Any, listener: Listener | None, stack: ExitStack) -> tuple[_Looks, _Jobs]:
        """Return what looks at the sample and what does a list of jobs. Processes for a first run start at once, and do both."""
        if executor == "threads":
            return tuple, partial(parallel_jobs, num_workers=count, executor="threads", trace=listener)
        most = min(count, self.options.num_shards or count, max(1, self.split.num_positions))
        part = SamplePart(self.split, self.policy, most)
        if not self.split.num_positions or os.path.lexists(os.path.join(dest, self.options.manifest_name())):
            return tuple, partial(_late, part, count, listener)
        function = _sendable(part)
        early = stack.enter_context(Early(most))
        return partial(_looked, early, function), partial(early.jobs, listener=listener)

    def _packed(self, inputs: Inputs, dest: str, count: int, looks: _Looks, jobs: _Jobs, watching: Watching, disk: Disk) -> Manifest:
        origin = origin_of(self.split.whole(), inputs)
        begin = clocks()
        sample = self.sample(looks())
        listener = watching.listener("sample")
        if listener is not None:
            listener(BlockDone("sample", 0, *times_since(begin), sample.num_sampled, chunk=(0, 0)))
        num_shards = self.options.count_of(sample.total_bytes, self.split.num_positions)
        record = self._record(sample, num_shards)
        names = self.options.file_names(num_shards)
        folder = Folder(dest, disk)
        disk.make_folder(dest)
        lock = lock_folder(dest, shared=False)
        try:
            done = _finished(folder, self.options, record, origin)
            if done is None:
                check_room(dest, sample.total_bytes - _written(folder, names))
                task = self._task(folder, sample, names, record, origin)
                notes = _notes(task, count, jobs, watching)
                self._judge(notes, inputs)
                folder.write_origin(self.options.manifest_name(), origin)
                folder.write_manifest(self.options.manifest_name(), sealed(_with_notes(record, notes, self._lost)))
            if done is None or folder.is_of(record, origin):
                folder.clear()
            return done or read_manifest(folder.file(self.options.manifest_name()))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                error.add_note(
                    f"penstock: {size_words(_written(folder, names))} are in finished files; by the sample all of them would take about "
                    f"{size_words(sample.total_bytes)}"
                )
            raise
        finally:
            os.close(lock)

    def _record(self, sample: Sample, num_shards: int) -> dict[str, Any]:
        """Return what the bytes depend on, as it stands in the manifest."""
        return {
            "penstock_pack": FORM,
            "format": self.options.format,
            "compression": self.options.compression,
            "fields": [column.as_json() for column in sample.columns],
            "options": {**self.options.as_json(), "on_error": repr(self.policy)},
            "num_shards": num_shards,
            "num_positions": self.split.num_positions,
            "dataset": identity(self.split.whole(), ""),
            "versions": versions_of(self.split.whole(), self.options, self._below),
        }

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

    def _judge(self, notes: list[dict[str, Any]], inputs: Inputs) -> None:
        """Refuse a result of which too much is missing, or whose input changed while it was made.

        Raises:
            TooManySkipped, SourceError: what is wrong.
        """
        error = changed(self.split.base, inputs)
        if error is not None:
            raise error
        if not sum(note["count"] for note in notes):
            raise SourceError("no element is left to write", where=_WHERE, fix="look at the filter, and at what on_error leaves out")
        last = final(self.policy)
        limit = last.limit if isinstance(last, Skip) else None
        lost = [*self._lost, *(lost for note in notes for lost in note["skipped"])]
        count = self.split.num_positions + len(self._lost)
        most = None if limit is None else limit if isinstance(limit, int) else limit * count
        if most is not None and len(lost) > most:
            first = lost[0]
            raise TooManySkipped(
                f"{len(lost)} of {count} elements failed, limit {limit!r}; first: {first['error']}: {first['text']}",
                where=f"{_WHERE}, {first['where']}",
                fix="mend the input, or allow more: ps.Skip(limit)",
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
    path = folder.file(options.manifest_name())
    if not os.path.lexists(path):
        return None
    manifest = read_manifest(path)
    name = options.manifest_name()
    other = difference(manifest.record, record) or origin.difference(folder.origin(name))
    missing = manifest.missing()
    problem = other or next((problem for problem in manifest.problems(hashes=True) if problem not in missing), None)
    if problem is not None:
        fix = "restore that file, or remove it and call this again: a missing shard is made again"
        if other:
            fix = "give another folder or name=, or remove what is there"
        elif problem in manifest.strangers():
            fix = "move that file away, or remove it"
        raise PackError(
            f"the folder holds a packed dataset {options.name!r} already, and {problem}", where=f"{_WHERE} to {folder.path!r}", fix=fix
        )
    if missing:
        folder.take_back(record, manifest.notes(), origin)
        return None
    return replace(manifest, was_there=True)


def _written(folder: Folder, names: list[str]) -> int:
    """Return how many bytes of the shards are there already."""
    return sum(os.path.getsize(path) for path in map(folder.file, names) if os.path.isfile(path))


def _notes(task: Task, count: int, jobs: _Jobs, watching: Watching) -> list[dict[str, Any]]:
    """Have all shards written, and return their notes in order."""
    num_shards = len(task.names)
    threads = -(-count // min(count, num_shards))
    task = replace(task, num_threads=threads if threads > 1 else 0, traced=watching.timeline is not None)
    with ExitStack() as stack:
        advance = stack.enter_context(watching.bar("packing", task.split.num_positions))
        if advance is not None:
            path = os.path.join(task.folder.work, f"{task.run_id}.ticks")
            task = replace(task, ticks=stack.enter_context(Ticker(path, advance)).path)
        return jobs(task, range(num_shards))


def _late(part: SamplePart, count: int, listener: Listener | None, task: Task, shards: range) -> list[dict[str, Any]]:
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


def _with_notes(record: dict[str, Any], notes: list[dict[str, Any]], lost_before: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest; what was left out before there were positions belongs to no shard.

    Losses of several stages are told in an order that depends on the workers, so they are sorted.
    """
    skipped = [{"shard": None, **lost} for lost in sorted(lost_before, key=_place_of)]
    skipped += [{"shard": number, **lost} for number, note in enumerate(notes) for lost in sorted(note["skipped"], key=_place_of)]
    shards = [{key: note[key] for key in ("name", "count", "size", "sha256", "first", "positions")} for note in notes]
    return {
        **record,
        "count": sum(note["count"] for note in notes),
        "size": sum(note["size"] for note in notes),
        "num_skipped": len(skipped),
        "shards": shards,
        "skipped": skipped,
    }


def _place_of(lost: dict[str, Any]) -> Any:
    return lost["key"], lost["where"], lost["stage"], lost["text"]
