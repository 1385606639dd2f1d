"""`pack`: a dataset into shards that everybody can read, as one call.

A shard has the same bytes from any worker, and however often. Of a stream, one reader makes the elements in order, and writes one file
behind the other.
"""

from __future__ import annotations

import errno
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Literal

import numpy as np

from penstock._contracts.event import ElementLost, Event
from penstock._contracts.policy import Policy, Replace, Skip, checked_policy, final
from penstock._plan import check
from penstock._plan.base import length_of
from penstock._system.failing import add_note, text_of
from penstock._system.lazy import dataclass
from penstock._system.process import refuse_on_windows
from penstock._system.text import size_words
from penstock.dataset.builder import Dataset
from penstock.dataset.measuring import Number, is_number, no_number, opened
from penstock.errors import PackError, PenstockError, PlanError, SourceError, TooManySkipped
from penstock.jobs import parallel_jobs
from penstock.observe.progress import Progress
from penstock.packing.disk import Folder, Inputs, OutFile, check_apart, check_unchanged, lock_folder, look, make_folder, sums_of
from penstock.packing.encoders import open_encoder
from penstock.packing.manifest import Manifest, found_in, lost_record, read_manifest, record_of, sealed, with_notes
from penstock.packing.options import PackOptions, destination, options_of, workers_of
from penstock.packing.schema import Schema
from penstock.packing.split import MOST, Estimate, Split, check_ends, has_positions, sample_of, split, take_sample

_WHERE = "pack()"
_LARGEST_TASK_BYTES = 64 << 20
_LEFT_FREE = 0.05

Executor = Literal["processes", "threads"]
Shown = bool | Literal["always"]


def pack(
    dataset: Any,
    dest: str | os.PathLike[str],
    *,
    num_workers: int | Literal["auto"] = "auto",
    executor: Executor = "processes",
    on_error: Policy | None = None,
    progress: Shown = False,
    **options: Any,
) -> Manifest:
    """Write all elements of a dataset to files that need no more work when they are read: TFRecord, WebDataset tar, Parquet, or tokens.

    Shard s holds a run of the dataset's positions, in its order, and nothing but dataset, options and s decides its bytes. So the files are
    the same for any number of workers, and after a kill: the same call finds the shards that are finished and makes the rest. A file has
    its final name when all of it is on the disk; the manifest, with fields, counts, sizes, hashes and what was left out, is written last.

    Blocks until all is done. May be called from any thread. Functions see some elements more than once: up to 64 are made before as a
    sample, in this process. With processes a program calls it under `if __name__ == "__main__":`, and the functions of the dataset stand
    at the top of a module, as for `ps.parallel_jobs`.

    Args:
        dataset: it has an end. Elements are dicts, tuples or single values of numbers, arrays, bytes and str, the same fields in each.
            Filter, flat_map, unbatch and maps after positions run in the workers. Anything else whose elements only reading tells (a
            stream, compressed TFRecord; take, batch or shuffle after a filter) is read once, by threads of this process, and cut into
            shards of `shard_bytes`; after a kill it is read again from its beginning.
        dest: a folder; it is made when it is not there.
        num_workers: how many at once; "auto" is one per available CPU. With fewer shards than workers, there is a process for each shard,
            with several threads.
        executor: "processes", or "threads": in this process, for functions that cannot be sent to others and for arrays in memory.
        on_error: what is done about an element that fails, or cannot be written: the dataset's own policy by default. `ps.Skip(...)` leaves
            it out and notes it in the manifest. A count as limit is for all shards together, and each stops at it; a rate
            is judged at the end.
        progress: True draws a bar on stderr if that is a terminal; "always" writes elsewhere too, a line every 10 s.
        **options: what is written, as in `penstock.packing.PackOptions`: format, compression, num_shards, shard_bytes, shuffle, name,
            version, dtype, measure.

    Returns:
        The manifest.

    Raises:
        PlanError: an option cannot be used, or the dataset has no end or cannot be sent to a process.
        SpecError: an element has other fields than most, or one that cannot be written.
        SourceError: there is no element; an input file changed meanwhile.
        PackError: another packer is at work in the folder; it holds something else; the disk has too little room.
        OSError: the disk is full, or a file cannot be written.
        TooManySkipped: more elements failed than the policy allows.
        WorkerDied: a worker was killed.
        MissingExtra: Parquet without pyarrow.
        BaseException: what a function of the dataset raised, with a note that names stage, element and shard; KeyboardInterrupt.
    """
    chosen, folder, count = options_of(options), Folder(destination(dest)), workers_of(num_workers)
    if executor not in ("processes", "threads"):
        raise PlanError(f"executor={executor!r} is not known", where=_WHERE, fix='give "processes" or "threads"')
    refuse_on_windows(_WHERE, "pack on another machine, whose files this one can read")
    packing = _packing_of(dataset, chosen, on_error)
    check_apart(packing.root, folder.path)
    inputs = look(packing.root)  # before anything is read
    if executor == "processes" and isinstance(packing, _Positions):
        _check_sendable(packing.split)
    record, name = packing.record(), chosen.manifest_name()
    make_folder(folder.path)
    lock = lock_folder(folder.path, shared=False)
    try:
        earlier = found_in(folder, chosen, record, inputs)
        if earlier is None:
            full = packing.write(folder, inputs, count, executor, progress)
            folder.write_manifest(name, sealed(full), inputs)
        if earlier is None or folder.is_of(record):
            folder.clear()
        return earlier or read_manifest(folder.file(name))
    finally:
        os.close(lock)


def estimate(dataset: Any, *, on_error: Policy | None = None, **options: Any) -> Estimate:
    """Say what `pack` with these arguments would write. Makes at most 64 elements, and writes nothing.

    Raises:
        PlanError, SpecError, SourceError, MissingExtra, BaseException: as `pack`.
    """
    chosen = options_of(options)
    packing = _packing_of(dataset, chosen, on_error)
    sample = packing.sample()
    num_positions = packing.split.num_positions if isinstance(packing, _Positions) else sample.num_sampled
    return replace(sample, num_shards=None if sample.size is None else chosen.count_of(sample.size, num_positions))


def _packing_of(dataset: Any, options: PackOptions, on_error: Policy | None) -> _Positions | _Stream:
    """Return what packs a dataset.

    Raises:
        PlanError: it is none, has no end, or is a stream that the options are not for; a policy that puts other elements in their place.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where=_WHERE, fix="wrap it with ps.from_source or ps.from_arrays")
    policy = checked_policy(dataset._options.on_error if on_error is None else on_error, _WHERE)
    if isinstance(final(policy), Replace):
        raise PlanError(
            "Replace() would put an element in place of another that stands in another shard",
            where="pack(on_error=...)",
            fix="use ps.Skip() or ps.Retry()",
        )
    root = check.leaving_out(dataset._root)
    kind = _Positions if has_positions(root) else _Stream
    return kind(Dataset(root, dataset._options), options, policy)


def _check_sendable(split: Split) -> None:
    """Refuse to send what cannot be sent, or large arrays to each worker.

    Raises:
        PlanError: the dataset is too large, or cannot be sent.
    """
    from penstock._workers.sending import dumps_to_worker

    try:
        data = dumps_to_worker(split)
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


def _check_losses(policy: Policy, lost: Sequence[dict[str, Any]], num_written: int, num_read: int) -> None:
    """Refuse a result of which too much, or all, is missing.

    Raises:
        SourceError, TooManySkipped: what is wrong.
    """
    if not num_written:
        raise SourceError("no element is left to write", where=_WHERE, fix="look at the filter, and at what on_error leaves out")
    last = final(policy)
    if isinstance(last, Skip) and len(lost) > last.most(num_read, fewest=0):
        raise TooManySkipped(
            f"{len(lost)} of {num_read} elements failed, limit {last.limit!r}; first: {lost[0]['error']}: {lost[0]['text']}",
            where=f"pack(), {lost[0]['where']}",
            fix="mend the input, or allow more: ps.Skip(limit)",
        )


# -- positions --------------------------------------------------------------------------------------------------------------------------


class _Positions:
    """A dataset with positions: each shard is a job. Nothing runs before `record` or `sample`."""

    def __init__(self, dataset: Dataset, options: PackOptions, policy: Policy) -> None:
        """Check.

        Raises:
            PlanError: it is endless.
        """
        self.options, self.policy = options, policy
        self.split = split(dataset, options.shuffle)
        self.root = self.split.whole()

    def sample(self) -> Estimate:
        """Look at some elements; see `take_sample`."""
        return take_sample(self.split, self.options, self.policy)

    def record(self) -> dict[str, Any]:
        """Take the sample, and return what the bytes depend on, as it stands in the manifest."""
        self._sample = sample = self.sample()
        num_shards = self.options.count_of(sample.size or 0, self.split.num_positions)
        counts = {"num_shards": num_shards, "num_positions": self.split.num_positions}
        self._record = record_of(self.options, self.policy, self.root, sample.schema, counts)
        return self._record

    def write(self, folder: Folder, inputs: Inputs, count: int, executor: Executor, progress: Shown) -> dict[str, Any]:
        """Write the shards that an earlier run has not finished, and return the manifest."""
        num_bytes, names = self._sample.size or 0, self.options.file_names(self._record["num_shards"])
        _check_room(folder.path, num_bytes - _written(folder, names))
        run_id = os.urandom(8).hex()
        threads = -(-count // min(count, len(names)))
        task = _Task(
            split=self.split,
            borders=self.split.borders(len(names)),
            names=names,
            options=self.options,
            schema=self._sample.schema,
            policy=self.policy,
            folder=folder,
            run_id=run_id,
            num_threads=threads if threads > 1 else 0,
        )
        try:
            every = [one for name in names for one in self.options.names_of(name)]
            folder.prepare({**self._record, "inputs": inputs.digest, "id": run_id}, every)
            notes = parallel_jobs(task, range(len(names)), count, executor=executor, progress=progress)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                add_note(
                    error,
                    f"penstock: {size_words(_written(folder, names))} are in finished files; by the sample all of them would take about "
                    f"{size_words(num_bytes)}",
                )
            raise
        check_unchanged(self.root, inputs)
        lost = [lost for note in notes for lost in note["skipped"]]
        _check_losses(self.policy, lost, sum(note["count"] for note in notes), self.split.num_positions)
        return with_notes(self._record, notes, [])


def _written(folder: Folder, names: list[str]) -> int:
    """Return how many bytes of the shards are there already."""
    return sum(os.path.getsize(path) for path in map(folder.file, names) if os.path.isfile(path))


def _check_room(folder: str, needed_bytes: int) -> None:
    """Make sure that a disk has room for so many bytes.

    Raises:
        PackError: it has not.
    """
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if needed_bytes > free:
        raise PackError(
            f"about {size_words(needed_bytes)} are needed and {size_words(free)} are free",
            where=f"pack() to {folder!r}",
            fix="make room, or pack less, smaller or compressed",
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Task:
    """What a worker is given: everything that the bytes of a shard depend on, and where they go. Called with a shard's number.

    Attributes:
        split: the dataset.
        borders: positions where shards begin, and the end.
        names: of the files.
        options: what else decides the bytes.
        schema: the fields, and how they are written.
        policy: what is done about elements that fail.
        folder: the destination.
        run_id: of the packer's run.
        num_threads: of the feed in each worker; 0 is in line.
    """

    split: Split
    borders: Sequence[int]
    names: Sequence[str]
    options: PackOptions
    schema: Schema
    policy: Policy
    folder: Folder
    run_id: str
    num_threads: int

    def __repr__(self) -> str:
        """Name what one call makes, for bars and errors."""
        return "shard"

    def __call__(self, shard: int) -> dict[str, Any]:
        """Write shard `shard`, unless it is there already, and return its note.

        Raises:
            PackError: the packer that gave the task has ended.
            OSError: the disk is full, was taken away, or another step failed; no file stands under a final name that is not complete.
            BaseException: of an element that could not be made or written.
        """
        lock = lock_folder(self.folder.path, shared=True)
        try:
            self.folder.check_run(self.run_id)
            return self.folder.finished(self.names[shard]) or self._written(shard)
        finally:
            os.close(lock)

    def _written(self, shard: int) -> dict[str, Any]:
        name, begin, end = self.names[shard], self.borders[shard], self.borders[shard + 1]
        note: dict[str, Any] = {"first": begin, "positions": end - begin, "count": 0, "skipped": []}
        names = self.options.names_of(name)

        def fill(outs: Sequence[OutFile]) -> None:
            encoder = _Writer(self.options, self.schema, outs, shard)
            part = self.split.part(begin, end).map(_Row(self.schema, self.options.measure), name="pack")
            workers: dict[str, Any] = {"executor": "threads" if self.num_threads else "inline", "num_workers": self.num_threads}
            with opened(part, self.policy, listeners=[_noting(note["skipped"])], **workers) as rows:
                for row in rows:
                    encoder.add(row)
                    note["count"] += 1
            encoder.finish()

        def described(outs: Sequence[OutFile]) -> dict[str, Any]:
            note.update(sums_of(names, outs))
            return note

        try:
            self.folder.publish(names, fill, described)
        except OSError as error:
            if not isinstance(error, PenstockError):
                add_note(error, f"penstock: writing {self.folder.file(name)!r}; the files that are there are complete, a rerun goes on")
            raise
        return note


def _noting(lost: list[dict[str, Any]]) -> Callable[[Event], None]:
    """Return a listener that keeps a record of each element that was left out."""

    def note(event: Event) -> None:
        if isinstance(event, ElementLost):
            lost.append(lost_record(event))

    return note


# -- streams ----------------------------------------------------------------------------------------------------------------------------


class _Stream:
    """A dataset whose elements only reading tells. Nothing runs before `write` or `sample`.

    It is read by this process, from its beginning, in the threads of one feed. Shards get their names when all are complete, so an
    interrupted run leaves none, and a rerun begins again.
    """

    def __init__(self, dataset: Dataset, options: PackOptions, policy: Policy) -> None:
        """Check.

        Raises:
            PlanError: it has no end; an option is for datasets with positions.
        """
        self.options, self.policy, self.root = options, policy, dataset._root
        self._dataset = dataset
        self._lost: list[dict[str, Any]] = []
        check_ends(self.root)
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

    def sample(self) -> Estimate:
        """Look at the first elements, 64 at most, in the caller's thread."""
        with self._opened(0) as elements:
            first = list(islice(elements, MOST + 1))
        return self._sample_of(first[:MOST], len(first) if len(first) <= MOST else None)

    def record(self) -> dict[str, Any]:
        """Return what the bytes depend on, as far as it is known before the stream is read."""
        return record_of(self.options, self.policy, self.root)

    def write(self, folder: Folder, inputs: Inputs, count: int, executor: Executor, progress: Shown) -> dict[str, Any]:
        """Read the stream, write the shards, and return the manifest."""
        folder.prepare({**self.record(), "inputs": inputs.digest}, self.options.names_of(self.options.file_names(1)[0]))
        try:
            shards, schema = self._shards(folder.work, count, progress)
            check_unchanged(self.root, inputs)
            num_written = sum(count for _, count in shards)
            _check_losses(self.policy, self._lost, num_written, num_written + len(self._lost))
        except BaseException as error:
            try:
                folder.clear()
            except OSError as other:
                add_note(error, f"penstock: and then, removing {folder.work!r}: {other}")
            raise
        notes, first, names = [], 0, dict[str, str]()
        for (outs, count), name in zip(shards, self.options.file_names(len(shards)), strict=True):
            own = self.options.names_of(name)
            notes.append({**sums_of(own, outs), "count": count, "first": first, "positions": count, "skipped": []})
            first += count
            names |= zip((out.path for out in outs), own, strict=True)
        folder.give_names(list(names), list(names.values()))
        counts = {"num_shards": len(shards), "num_positions": first + len(self._lost)}
        return with_notes(record_of(self.options, self.policy, self.root, schema, counts), notes, self._lost)

    def _shards(self, folder: str, num_workers: int, progress: Shown) -> tuple[list[tuple[list[OutFile], int]], Schema]:
        """Read the stream and write it to files without a name; return the closed files of each shard, and how many elements it has."""
        with self._opened(num_workers) as elements, _bar(progress, length_of(self.root)) as advance:
            first = list(islice(elements, MOST))
            sample = self._sample_of(first, None)
            rows = self._rows(sample.schema, chain(first, elements), advance)
            shards: list[tuple[list[OutFile], int]] = []
            for row in rows:
                _check_left(folder, sum(out.size for outs, _ in shards for out in outs))
                shards.append(self._shard(folder, sample.schema, len(shards), chain([row], rows)))
            return shards, sample.schema

    def _shard(self, folder: str, schema: Schema, number: int, rows: Iterator[Sequence[Any]]) -> tuple[list[OutFile], int]:
        """Write the files of a shard, up to its size."""
        most = None if self.options.num_shards == 1 else self.options.aimed_bytes()
        path = os.path.join(folder, f"{self.options.name}-{number}")
        outs, count = [OutFile(f"{path}-{place}.part") for place in range(len(self.options.names_of("")))], 0
        try:
            encoder = _Writer(self.options, schema, outs, number)
            for row in rows:
                encoder.add(row)
                count += 1
                if most is not None and outs[0].size >= most:
                    break
            encoder.finish()
            for out in outs:
                out.seal()
        except OSError as error:
            add_note(error, f"penstock: writing {outs[0].path!r}; nothing of it stays, as a stream is packed from its beginning")
            raise
        finally:
            for out in outs:
                out.close()
        return outs, count

    @contextmanager
    def _opened(self, num_workers: int) -> Iterator[Iterator[Any]]:
        """Give the elements; those that the policy leaves out are noted."""
        self._lost = []
        given, workers = self._dataset._options, dict[str, Any]()
        if given.executor != "inline" and given.num_workers != 0:
            workers = {"executor": "threads" if num_workers else "inline", "num_workers": num_workers}
        with opened(self._dataset, self.policy, listeners=[_noting(self._lost)], **workers) as elements:
            yield elements

    def _sample_of(self, first: list[Any], count: int | None) -> Estimate:
        if not first:
            raise SourceError("no element is left to write", where=_WHERE, fix="look at the filter, and at what on_error leaves out")
        return sample_of(first, self.root, self.options, count)

    def _rows(self, schema: Schema, elements: Iterable[Any], advance: Callable[[float], object]) -> Iterator[list[Any]]:
        """Give what is written of each element; what does not fit the fields is raised, or left out and noted."""
        last, values = final(self.policy), _Row(schema, self.options.measure)
        for number, element in enumerate(elements):
            try:
                row = values(element)
            except Exception as error:
                where = f"element {number} of {self.root.line()}"
                if isinstance(last, Skip) and isinstance(error, last.errors):
                    record = {"where": where, "stage": "pack", "error": type(error).__name__, "text": text_of(error)}
                    self._lost.append({"key": [[0, number, 0]], **record, "retries": 0})
                    continue
                add_note(error, f"penstock: {where}")
                raise
            advance(1)
            yield row


@dataclass(frozen=True, slots=True)
class _Row:
    """Makes of an element what is written of it: the values of its fields, then its numbers. For `Dataset.map`."""

    schema: Schema
    functions: Mapping[str, Number]

    def __call__(self, element: Any) -> list[Any]:
        row = list(self.schema.values(element))
        for name, function in sorted(self.functions.items()):
            value = function(element)
            if not is_number(value):
                raise no_number(function, value, f"pack(measure=...), column {name!r}")
            row.append(int(value))
        return row


class _Writer:
    """Writes the rows of a shard; the numbers in them to the last of its files."""

    def __init__(self, options: PackOptions, schema: Schema, outs: Sequence[OutFile], shard: int) -> None:
        self._numbers, self._out = [array("q") for _ in options.measure], outs[-1]
        files = outs[:-1] if self._numbers else outs
        self._encoder = open_encoder(options.format, schema.fields, options.compression, files, shard)

    def add(self, row: Sequence[Any]) -> None:
        count = len(row) - len(self._numbers)
        self._encoder.add(row[:count])
        for column, number in zip(self._numbers, row[count:], strict=True):
            column.append(number)

    def finish(self) -> None:
        self._encoder.finish()
        for column in self._numbers:
            self._out.write(np.array(column, "<i8").tobytes())


def _check_left(folder: str, num_bytes: int) -> None:
    """Stop before the disk is full: a stream without an end would fill it, and others need it too.

    Raises:
        PackError: less than a twentieth of it is free.
    """
    status = os.statvfs(folder)
    if status.f_bavail < _LEFT_FREE * status.f_blocks:
        raise PackError(
            f"{size_words(num_bytes)} of a stream were written, and the disk is nearly full: "
            f"{size_words(status.f_bavail * status.f_frsize)} are free",
            where=f"{_WHERE} in {os.path.dirname(folder)!r}",
            fix="make room; if the stream has no end, give it one with take(n)",
        )


@contextmanager
def _bar(progress: Shown, total: float | None) -> Iterator[Callable[[float], object]]:
    """Draw a bar of elements, if it is wanted; give what moves it."""
    if progress == "always" or (progress and sys.stderr and sys.stderr.isatty()):
        with Progress("packing", total, unit="elements") as drawn:
            yield drawn.advance
    else:
        yield lambda count: None
