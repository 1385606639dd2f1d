"""`measure`: numbers of each element of a dataset, computed once, in parallel, and kept in a folder.

Finished chunks stand in FOLDER/.measuring, one file each. A job locks a chunk while it computes it, and goes on with the next one that no
other job has. So several jobs share the work, and one that is killed loses its chunk. When all are there, one job writes each column from
them; the record that makes the folder complete is the last file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.policy import Policy, Replace, Retry, Skip, checked_policy, final
from penstock._contracts.source import SplitSource
from penstock._order.planned import FilteredOrder
from penstock._plan import check, known
from penstock._plan.base import Node, function_name, has_name, walk
from penstock._plan.facts import identity, identity_with_files, known_length, lines, unnamed
from penstock._storage.cache import FileLock, held, try_lock
from penstock._storage.local import publish, sync_folder
from penstock._storage.sameness import stamps
from penstock._system.failing import add_note
from penstock._system.lazy import dataclass
from penstock._system.process import refuse_on_windows
from penstock.dataset.builder import Dataset
from penstock.dataset.known import no_ranks
from penstock.errors import PlanError, SourceError, SpecError, TooManySkipped
from penstock.jobs.digest import Untold, digest_of
from penstock.kernels.library import Ints
from penstock.observe.progress import Progress
from penstock.sources.measures import FAILED, FILES, FORM, RECORD, WORK, Kind, Measures, different, digests, read_measures, read_record

TO_MEASURE = "measure before the filter, flat_map or generator; of compressed files, ps.pack(ds, folder, measure=...) packs and measures"
_WHERE = "measure()"
CHUNK_SIZE = 65_536
"""So many elements are computed again after a kill, at most, and those of a few batches. A power of two."""
_LEAST_SIZE, _NUM_SHARED = 8, 32
"""A chunk is that large at least, as bits of a column lie in bytes; a small dataset has about so many, for several jobs."""
_BATCH = 1024
_RUN = "run.json"
_LOCK = ".lock"
_BOOLS = "-bools"
"""In a chunk, beside its columns: for which of them all values are booleans. No column can have the name."""
_PREFIX = "of-"
"""Of the arrays in a chunk: `np.savez` has names of its own."""

Number = Callable[[Any], int | bool]


def measure(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    functions: Mapping[str, Number],
    *,
    on_error: Policy | None = None,
    progress: bool | Literal["always"] = False,
    version: str = "",
    update: bool = False,
    **workers: Any,
) -> Measures:
    """Compute numbers of each element of a dataset, in its first pass, and keep them in a folder.

    What is there already is not computed again; after a kill the same call goes on. Jobs that measure into the same folder at the same
    time share the work: processes of one machine, and of several where folder and input lie on a file system whose locks work between
    them. Blocks until all is done. May be called from any thread.

    Args:
        dataset: its positions are known before reading, and it has an end.
        folder: it is made when it is not there.
        functions: by name of a column. Each takes an element and returns a whole number in 0..2**46-1 or a boolean. Functions, here and
            in the dataset, are known again by their names; lambdas and the like, here, by source text and values too.
        on_error: what is done about an element that fails: the dataset's own policy by default. `ps.Skip(...)` leaves it out: its numbers
            are 0, and the column of the failed marks it. A limit is for all of the dataset, a rate is judged at the end.
        version: of the functions, as `cache(version=)` has it: give another one after a change of what one does.
        progress: True draws a bar on stderr if that is a terminal; "always" writes elsewhere too. It counts what all jobs have done.
        update: take the numbers of a folder that was measured when the dataset had other files, for the files that are as they were: the
            same path, size, times and inode. Only the elements of the others are measured.
        **workers: "num_workers": how many at once; None or "auto" is one per available CPU, 0 computes in the caller's thread. And
            "executor": "processes" by default, or "threads", for functions that cannot be sent to others.

    Returns:
        The columns, mapped.

    Raises:
        PlanError: an argument cannot be used; the folder holds numbers of another dataset or of other functions; it is not complete, and
            cannot be written; with `update`, it is not known which elements are of which file.
        LengthUnknown: the dataset has no end.
        SpecError: a function returned something else; element and function are named.
        SourceError: the folder is damaged; an input file changed meanwhile.
        TooManySkipped: more elements failed than the policy allows.
        OSError: the folder cannot be written.
        WorkerDied: a worker was killed.
        BaseException: what a function raised, with a note that names it and the element; KeyboardInterrupt.
    """
    refuse_on_windows(_WHERE, "measure on another machine, whose files this one can read")
    policy = _policy_of(dataset, on_error)
    told = _checked(dataset, functions)
    length, path = known_length(dataset._root, _WHERE), _path_of(folder)
    identity, is_updated = sameness(dataset._root, version), check.flag_argument(update, "update", "measure")

    def found() -> Measures | None:
        if not os.path.exists(os.path.join(path, RECORD)):
            return None
        try:
            return read_measures(path, identity, length, told)
        except PlanError:
            if not is_updated:
                raise
        return None

    done = found()
    if done is not None:
        return done
    lock = _lock_of(path)
    job = _Job(path, dataset, dict(functions), length, policy)
    with held(lock):
        done = found()  # another job may have made it
        if done is not None:
            return done
        job.prepare(told, version, identity)
    count = workers.get("num_workers")
    workers = {"executor": "processes", **workers, "num_workers": "auto" if count is None else count}
    job.compute({**workers, "executor": "inline"} if count == 0 else workers, progress)
    with held(lock):
        if found() is None:
            job.join({"identity": digests(identity), "length": length}, told)
    return read_measures(path, identity, length, told)


def _lock_of(path: str) -> str:
    """Make the folder and the file whose lock is for it, and return the path of that.

    Raises:
        PlanError: it must not be written.
        OSError: as the system says it.
    """
    lock = os.path.join(path, _LOCK)
    try:
        os.makedirs(path, exist_ok=True)
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o666))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise PlanError(
            f"the numbers are not complete here, and this program must not write here: {error.strerror}",
            where=f"measure() into {path!r}",
            fix="give a folder that it may write, or have the numbers measured by one that may: a complete folder is only read",
        ) from error
    sync_folder(os.path.dirname(path))
    return lock


def _policy_of(dataset: Any, on_error: Policy | None) -> Policy:
    """Return what is done about an element that fails.

    Raises:
        PlanError: it is no policy, or one that puts another element in place of a failing one.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where=_WHERE, fix="wrap it with ps.from_source or ps.from_arrays")
    policy = checked_policy(dataset._options.on_error if on_error is None else on_error, _WHERE)
    last = final(policy)
    for given in (last, *(final(own) for own in (getattr(node, "on_error", None) for node in walk(dataset._root)) if own is not None)):
        if isinstance(given, Replace):
            raise PlanError("Replace() would give an element the numbers of another", where=_WHERE, fix="use ps.Skip() or ps.Retry()")
    return policy


def _checked(dataset: Dataset, functions: Mapping[str, Number]) -> dict[str, str]:
    """Check what is measured, and return what identifies each function.

    Raises:
        PlanError: an argument cannot be used.
    """
    check.indexable(dataset._root, "measure", TO_MEASURE)
    no_ranks(dataset._root, "measure", "each rank would measure its own part, into the same folder")
    if not functions:
        raise PlanError("no function is given", where=_WHERE, fix="name what is computed, such as length=fn")
    return told_of(functions)


def told_of(functions: Mapping[str, Number]) -> dict[str, str]:
    """Check the functions of columns, and return what identifies each.

    Raises:
        PlanError: a name or a function cannot be used.
    """
    told = {}
    for name, function in functions.items():
        if not isinstance(name, str) or not name.isidentifier() or name in (FAILED, FILES):
            raise PlanError(f"{name!r} is no name of a column", where=_WHERE, fix=f"give an identifier other than {FAILED!r} and {FILES!r}")
        check.callable_argument(function, f"measure, which takes any other name as that of a function, {name}=", where=_WHERE)
        check.no_async(function, _WHERE)
        told[name] = function_name(function)
        if not has_name(function):
            try:
                told[name] += f" {digest_of(function, sources=True)}"
            except Untold as error:
                raise PlanError(
                    f"nothing tells in another run whether {told[name]} is the same function: {error}",
                    where=f"measure({name}=...)",
                    fix="use a plain function with a name",
                ) from error
    return told


def sameness(root: Node, version: str) -> dict[str, Any]:
    """Return a JSON-able record of what was measured.

    It has the lines of the plan as a saved state has them, the modules of the functions, and the fingerprints of the data.

    Raises:
        PlanError: a function of the dataset has no name that could tell it from another one.
    """
    nameless = None if version else unnamed(root)
    if nameless is not None:
        raise PlanError(
            f"numbers are found again by the names of functions, and {function_name(nameless[0])} says too little: a lambda, a partial "
            "and a function or method with values of its own look the same whatever they do",
            where=f"{_WHERE} behind map({nameless[1]})",
            fix="use a plain function with a name, or give version=, and another one after each change",
        )
    modules = [_module_of(node.fn) for node in walk(root) if hasattr(node, "fn")]
    return {**identity(root, version), "plan": [*lines(root, saved=True), *modules]}


def _module_of(fn: Any) -> str:
    """Return the last part of the name of a function's module; of a program that is run, the name that others import it by."""
    module = str(getattr(fn, "__module__", ""))
    if module == "__main__":
        module = os.path.splitext(os.path.basename(getattr(sys.modules["__main__"], "__file__", None) or ""))[0]
    return module.rpartition(".")[2]


def _with_files(root: Node, version: str) -> dict[str, Any]:
    return {**identity_with_files(root, version), **sameness(root, version)}


def _path_of(folder: str | os.PathLike[str]) -> str:
    """Return the absolute path of the folder.

    Raises:
        PlanError: it is a URL or a file.
    """
    path = os.fsdecode(folder)
    if not path or "://" in path or (os.path.lexists(path) and not os.path.isdir(path)):
        raise PlanError(f"{path!r} is no folder of this machine", where=_WHERE, fix="give the path of a folder, new or not")
    return os.path.abspath(path)


@dataclass(frozen=True, slots=True, repr=False)
class _Numbers:
    """What a worker is given. Called with number and element, it returns the number, and each value coded, as a tuple.

    That is twice the value, plus 1 for a boolean. `order` says where in the dataset the elements stand, if these are some of it.
    """

    functions: dict[str, Number]
    order: FilteredOrder | None

    def __call__(self, numbered: tuple[int, Any]) -> tuple[int, ...]:
        number, element = numbered
        row: tuple[int, ...] = (number,)
        for name, function in self.functions.items():
            try:
                value = function(element)
            except Exception as error:
                add_note(error, f"penstock: measuring {name!r} of element {self._place(number)}, with {function_name(function)}")
                raise
            if type(value) is int and 0 <= value < 2**46:
                row += (2 * value,)
                continue
            if not is_number(value):
                raise no_number(function, value, f"measure({name}=...), element {self._place(number)}")
            row += (2 * int(value) + isinstance(value, (bool, np.bool_)),)
        return row

    def _place(self, number: int) -> int:
        return number if self.order is None else int(self.order.below(np.zeros(1, np.int64), np.array([number]))[0])


def is_number(value: Any) -> bool:
    """Tell whether a value can stand in a column."""
    return bool(isinstance(value, (int, np.integer, np.bool_)) and 0 <= value < 2**46)


def no_number(function: Number, value: Any, where: str) -> SpecError:
    """Return the error of a function whose result cannot."""
    return SpecError(
        f"{function_name(function)} returned {value!r}, of type {type(value).__name__}",
        where=where,
        fix="return a whole number in 0..2**46-1, or a boolean",
    )


class _Files(NamedTuple):
    """Which elements of a dataset are of which file.

    Attributes:
        starts: int64 [files + 1], the first element of each file, then the length.
        rows: int64 [files, 5]: a hash of the path and of how the file is read, its stamp (see `penstock._storage.sameness`), and how many
            elements it has.
    """

    starts: Ints
    rows: Ints


def _files_of(root: Node) -> _Files:
    """Look at the files of a dataset.

    Raises:
        PlanError: it is not known which elements are of which file, or an element depends on more than its file.
    """
    node = root
    while node.aligned and not node.varies and node.operator != "enumerate":
        node = node.children[0]
    source = getattr(node, "source", None)
    if isinstance(source, SplitSource):
        starts, how = source.by_file()
        paths, words = list(source.input_files()), json.dumps(how, sort_keys=True)
        found = stamps(paths)
        if len(paths) == len(starts) - 1 and (found[:, 0] >= 0).all():
            data = b"".join(hashlib.sha256(os.fsencode(f"{words} {path}")).digest()[:8] for path in paths)
            return _Files(starts, np.column_stack([np.frombuffer(data, "<i8"), found, np.diff(starts)]))
    raise PlanError(
        f"which elements are of which file is not known of {node.line()}",
        where="measure(update=True)",
        fix="read local files of records, Parquet or read_files(), with nothing but map and cache between; or measure into another folder",
    )


@dataclass(frozen=True, slots=True, repr=False)
class _Kept:
    """Of which elements the numbers are known already.

    Attributes:
        starts: int64 [files + 1], as `_Files` has them.
        olds: int64 [files]: where the elements of each file begin in the earlier columns, -1 for a file that must be measured.
    """

    starts: Ints
    olds: Ints

    def old(self, positions: Ints) -> Ints:
        """Return where the numbers of elements are in the earlier columns; -1: nowhere."""
        files = np.searchsorted(self.starts, positions, side="right") - 1
        return np.where(self.olds[files] < 0, -1, self.olds[files] + positions - self.starts[files])

    def __call__(self, positions: Ints, epoch: int = 0) -> Ints:
        """Return 1 for the elements that must be measured: the numbers of a `FilteredOrder`."""
        return (self.old(positions) < 0).astype(np.int64)

    def describe(self, position: int) -> str:
        """Name the element."""
        return f"element {position}"


class _Job:
    """One job in a folder in which others may be at work as well."""

    def __init__(self, path: str, dataset: Dataset, functions: dict[str, Number], length: int, policy: Policy) -> None:
        self._path, self._work = path, os.path.join(path, WORK)
        self._dataset, self._functions, self._length, self._policy = dataset, functions, length, policy

    def prepare(self, told: dict[str, str], version: str, known_as: dict[str, Any]) -> None:
        """Begin, or go on with what other jobs have begun; the size of a chunk is then its own. Call it with the lock of the folder held.

        Raises:
            PlanError: it was of another dataset or other functions; it is not known of which files the elements are.
            SourceError: the numbers of other files cannot be read.
        """
        root = self._dataset._root
        self._inputs, self._version = digests(_with_files(root, version)), version
        self._earlier: tuple[Measures, _Kept] | None = None
        self._order: FilteredOrder | None = None
        record, self._files = os.path.join(self._path, RECORD), None
        is_updated = os.path.exists(record)
        with nullcontext() if is_updated else suppress(PlanError):
            self._files = _files_of(root)
        if is_updated:
            self._take(read_measures(self._path, known_as, None, told))
        self._count = self._length if self._order is None else len(self._order)
        size = min(CHUNK_SIZE, max(_LEAST_SIZE, 1 << max(1, self._count // _NUM_SHARED).bit_length() - 1))
        run: dict[str, Any] = {**self._inputs, "form": FORM, "length": self._length, "functions": told, "chunk_size": size}
        if is_updated:
            run["earlier"] = digests(read_record(record))
        self._mark = f"-{zlib.crc32(json.dumps(run).encode()):08x}" if is_updated else ""
        self._begin(run)

    def _begin(self, run: dict[str, Any]) -> None:
        path = os.path.join(self._work, _RUN)
        found = read_record(path) if os.path.exists(path) else None
        if found is not None and self._mark:
            others = different({**found, "chunk_size": 0}, {**run, "chunk_size": 0})
            # It is of the run that made what is there, and was killed when all was written; or of an update before files changed once more.
            if "earlier" in others or (others and {*others} <= {"dataset", "inputs", "length"} and self._is_idle()):
                self._remove()
                found = None
        if found is not None:
            run["chunk_size"] = found["chunk_size"]
            others = different(found, run)
            if others:
                raise PlanError(
                    f"the folder holds an unfinished measuring of something else: other {' and '.join(others)}",
                    where=f"measure() into {self._path!r}",
                    fix=f"give what it was begun with, or another folder; or remove {self._work!r}",
                )
        else:
            os.makedirs(self._work, exist_ok=True)
            sync_folder(self._path)
            publish(path, json.dumps(run).encode())
        self._size: int = run["chunk_size"]
        self._parts = [os.path.join(self._work, f"{begin:015d}.npz") for begin in range(0, self._count, self._size)]

    def _is_idle(self) -> bool:
        """Tell whether no job is at a chunk."""
        locks = [try_lock(os.path.join(self._work, name)) for name in os.listdir(self._work) if name.endswith(".lock")]
        for lock in locks:
            if lock is not None:
                lock.release()
        return None not in locks

    def _take(self, earlier: Measures) -> None:
        """Find the files that are as they were when the numbers in the folder were measured.

        Raises:
            PlanError: none is.
            SourceError: what tells it is damaged.
        """
        assert self._files is not None
        found = earlier.files
        rows = np.empty((0, 5), np.int64) if found is None else found.gather_columns(np.arange(len(found)), None)[0].reshape(-1, 5)
        starts = np.cumsum(rows[:, -1]) - rows[:, -1]
        places = {row.tobytes(): start for row, start in zip(rows, starts.tolist(), strict=True)}
        kept = _Kept(self._files.starts, np.array([places.get(row.tobytes(), -1) for row in self._files.rows], np.int64))
        if (kept.olds < 0).all():
            raise PlanError(
                "no file of the dataset is as it was when the numbers here were measured",
                where=f"measure(update=True) into {self._path!r}",
                fix="measure into another folder",
            )
        self._earlier, self._order = (earlier, kept), FilteredOrder(kept, self._length)

    # -- chunks -------------------------------------------------------------------------------------------------------------------

    def compute(self, workers: dict[str, Any], progress: bool | Literal["always"]) -> None:
        """Compute chunks that no other job has, until all are there.

        Raises:
            TooManySkipped: more elements failed than the policy allows.
            BaseException: of an element that could not be measured.
        """
        shown = progress == "always" or bool(progress and sys.stderr and sys.stderr.isatty())
        with Progress("measuring", self._count, unit="elements") if shown else nullcontext() as drawn:
            self._drawn, self._num_done = drawn, 0
            self._num_failed = sum(map(self._failed_in, self._parts))
            while (claimed := self._claim()) is not None:
                self._run(*claimed, workers)

    def _claim(self) -> tuple[int, FileLock] | None:
        """Take a chunk that no other job has; while others have all of them, wait. None when all are there.

        A chunk that a killed job has left comes first. Else it is the first of the longest run of free ones, or that in the middle if a
        job is at work right before the run, and comes to its beginning soon.
        """
        while True:
            begun, free = self._left()
            if not begun and not free:
                return None
            for number in begun:
                if (lock := self._lock(number)) is not None:
                    return number, lock
            if free:
                run = max(np.split(free, np.flatnonzero(np.diff(free) > 1) + 1), key=len)
                number = int(run[len(run) // 2 if run[0] - 1 in begun else 0])
                if (lock := self._lock(number)) is not None:
                    return number, lock
                continue
            if self._drawn is not None:
                sys.stderr.write(f"penstock: other jobs measure the last {len(begun)} of {len(self._parts)} chunks; waiting\n")
            with suppress(FileNotFoundError), held(f"{self._parts[begun[0]]}.lock"):
                pass

    def _left(self) -> tuple[list[int], list[int]]:
        """Return the chunks that were begun and are not there, and those that were not begun."""
        try:
            names = {os.path.join(self._work, name) for name in os.listdir(self._work)}
        except FileNotFoundError:  # another job has joined all of them
            names = set(self._parts)
        missing = [number for number, part in enumerate(self._parts) if part not in names]
        self._show(min(self._count, (len(self._parts) - len(missing)) * self._size))
        begun = [number for number in missing if f"{self._parts[number]}.lock" in names]
        return begun, sorted({*missing} - {*begun})

    def _show(self, num_done: int) -> None:
        if self._drawn is not None:
            self._drawn.advance(num_done - self._num_done)
        self._num_done = num_done

    def _lock(self, number: int) -> FileLock | None:
        """Take a chunk, if no job has it and it is not there."""
        try:
            lock = try_lock(f"{self._parts[number]}.lock")
        except FileNotFoundError:  # another job has joined all of them
            return None
        if lock is not None and os.path.exists(self._parts[number]):
            lock.release()
            return None
        return lock

    def _run(self, number: int, lock: FileLock, workers: dict[str, Any]) -> None:
        """Compute the chunk that is locked, and those behind it up to one that another job has or has made."""
        options, begin = self._dataset._options, number * self._size
        root = check.leaving_out(self._dataset._root)
        if self._order is not None:
            root = known.Chosen(child=root, order=self._order, words="changed()", mark="")
        numbered = Dataset(root, options).skip(begin).enumerate(begin)
        ds = numbered.map(_Numbers(self._functions, self._order), name="measure").batch(max(1, min(_BATCH, self._size // 8)))
        try:
            with opened(ds, self._policy, output="numpy", **workers) as batches:
                for chunk in self._chunks(begin, batches):
                    publish(self._parts[number], partial(_save, chunk))
                    lock.release()
                    self._show(self._num_done + len(chunk[FAILED]))
                    self._num_failed += int(chunk[FAILED].sum())
                    self._check_losses(self._num_failed)
                    number += 1
                    following = self._lock(number) if number < len(self._parts) else None
                    if following is None:
                        break
                    lock = following
        finally:
            lock.release()

    def _chunks(self, begin: int, batches: Iterator[Any]) -> Iterator[dict[str, NDArray[Any]]]:
        """Put batches together to chunks. What no batch has has failed; a batch of which all failed does not come."""
        batch = None
        while begin < self._count:
            count = min(self._size, self._count - begin)
            values = np.zeros((len(self._functions), count), np.int64)
            bools, failed = np.ones(len(self._functions), np.bool_), np.ones(count, np.bool_)
            while failed[-1]:  # behind the last element nothing is asked for: another job may have it
                batch = next(batches, None) if batch is None else batch
                if batch is None or batch[0][0] >= begin + count:
                    break
                places, coded, batch = batch[0] - begin, np.stack(batch[1:]), None
                values[:, places], failed[places] = coded >> 1, False
                bools &= (coded & 1).all(1)
            yield {**dict(zip(self._functions, values, strict=True)), FAILED: failed, _BOOLS: bools}
            begin += count

    def _check_losses(self, num_failed: int, *, at_end: bool = False) -> None:
        """Refuse a result of which too much is missing, over all jobs and runs; a rate is judged at the end.

        Raises:
            TooManySkipped: it is.
        """
        last = final(self._policy)
        if isinstance(last, Skip) and (at_end or isinstance(last.limit, int)) and num_failed > last.most(self._length, fewest=0):
            raise TooManySkipped(
                f"{num_failed} of {self._length} elements failed, limit {last.limit!r}",
                where=f"measure() into {self._path!r}",
                fix="mend the input, or allow more: ps.Skip(limit)",
            )

    # -- columns ------------------------------------------------------------------------------------------------------------------

    def join(self, head: dict[str, Any], told: dict[str, str]) -> None:
        """Write the columns of the chunks, then the record; remove the chunks. Call it with the lock of the folder held.

        Raises:
            SourceError: an input file changed meanwhile.
            TooManySkipped: more elements failed than the policy allows.
            OSError: a file cannot be read, written or removed.
        """
        num_failed = sum(int(values.sum()) for values in self._values(FAILED))
        self._check_losses(num_failed, at_end=True)
        if digests(_with_files(self._dataset._root, self._version)) != self._inputs:
            raise SourceError(
                "an input file changed while it was measured: it has another size, time or inode than at the beginning",
                where=f"measure() into {self._path!r}",
                fix="remove the folder and measure again, when nothing writes to the input any more",
            )
        columns = {}
        for place, (name, function) in enumerate(told.items()):
            kind = self._kind(place, name, num_failed)
            columns[name] = {**self._join(name, kind, self._values(name)), "function": function}
        others = {FAILED: self._join(FAILED, "bits", self._values(FAILED))} if num_failed else {}
        if self._files is not None:
            others[FILES] = {**self._join(FILES, "i8", [self._files.rows]), "length": self._files.rows.size}
        record = {"form": FORM, **head, "mark": self._mark, "columns": columns, "num_failed": num_failed, "others": others}
        publish(os.path.join(self._path, RECORD), json.dumps(record, indent=1).encode())
        self._remove()
        if self._earlier is not None:
            found, _ = self._earlier
            for column in (*found.columns.values(), found.failed, found.files):
                if column is not None:
                    os.unlink(column.path)
        sync_folder(self._path)

    def _remove(self) -> None:
        gone = f"{self._work}-done"
        shutil.rmtree(gone, ignore_errors=True)  # of a job that was killed here
        os.rename(self._work, gone)  # for all jobs at once
        shutil.rmtree(gone)

    def _kind(self, place: int, name: str, num_failed: int) -> Kind:
        """Return how a column is stored."""
        are_bools = all(self._stored(part, _BOOLS)[place] for part in self._parts)
        if are_bools and num_failed < self._length and (self._earlier is None or self._earlier[0].columns[name].is_bool):
            return "bits"
        return "i4" if max((int(values.max()) for values in self._values(name)), default=0) < 2**31 else "i8"

    def _join(self, name: str, kind: Kind, pieces: Iterable[NDArray[Any]]) -> dict[str, Any]:
        """Write a column, and return what the record says of it."""
        crc = 0

        def fill(file: BinaryIO) -> None:
            nonlocal crc
            for values in pieces:
                data = (np.packbits(values != 0, bitorder="little") if kind == "bits" else values.astype(f"<{kind}")).tobytes()
                crc = zlib.crc32(data, crc)
                file.write(data)

        publish(os.path.join(self._path, f"{name}{self._mark}.{kind}"), fill)
        return {"dtype": kind, "crc32": crc}

    def _values(self, name: str) -> Iterator[NDArray[Any]]:
        """Give the numbers of a column in pieces of multiples of 8: those of the chunks, and between them those that were there."""
        parts = (self._stored(part, name) for part in self._parts)
        if self._earlier is None:
            yield from parts
            return
        earlier, kept = self._earlier
        old = earlier.failed if name == FAILED else earlier.columns[name]
        fresh = np.empty(0, np.int64)
        for begin in range(0, self._length, CHUNK_SIZE):
            olds = kept.old(np.arange(begin, min(begin + CHUNK_SIZE, self._length)))
            is_new, values = olds < 0, np.zeros(len(olds), np.int64)
            if old is not None:
                values[~is_new] = old.gather_columns(olds[~is_new], None)[0]
            while len(fresh) < np.count_nonzero(is_new):
                fresh = np.concatenate([fresh, next(parts)])
            values[is_new], fresh = np.split(fresh, [np.count_nonzero(is_new)])
            yield values

    def _failed_in(self, part: str) -> int:
        try:
            return int(self._stored(part, FAILED).sum())
        except FileNotFoundError:  # not there yet, or another job has just joined the columns
            return 0

    def _stored(self, part: str, name: str) -> NDArray[Any]:
        """Read one array of a chunk."""
        with np.load(part) as arrays:
            found: NDArray[Any] = arrays[_PREFIX + name]
        return found


def _save(chunk: dict[str, NDArray[Any]], file: BinaryIO) -> None:
    np.savez(file, **{_PREFIX + name: array for name, array in chunk.items()})  # type: ignore[arg-type]


def for_part(policy: Policy) -> Policy:
    """Return the policy for a part of a dataset: a share of all is judged when all is known, a number now, too."""
    last = final(policy)
    if not isinstance(last, Skip) or not isinstance(last.limit, float):
        return policy
    free = replace(last, limit=None)
    return replace(policy, then=free) if isinstance(policy, Retry) else free


@contextmanager
def opened(dataset: Dataset, policy: Policy, **options: Any) -> Iterator[Iterator[Any]]:
    """Give the elements of a part of a dataset, in order."""
    with dataset.feed(ordered=True, on_error=for_part(policy), **options) as feed:
        feed._warns_when_empty = False
        yield iter(feed)
