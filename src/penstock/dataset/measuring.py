"""`measure`: numbers of each element of a dataset, computed once, in parallel, and kept in a folder.

Finished chunks stand in FOLDER/.measuring, one file each, so that a job that was killed goes on behind the last one. When all are there,
each column is written from them; the record that makes the folder complete is the last file.
"""

from __future__ import annotations

import json
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.policy import Policy, Replace, Retry, Skip, checked_policy, final
from penstock._plan import check
from penstock._plan.base import Node, function_name, has_name, walk
from penstock._plan.facts import identity, identity_with_files, known_length, lines, unnamed
from penstock._storage.cache import held
from penstock._storage.local import publish, sync_folder
from penstock._system.failing import add_note
from penstock._system.process import refuse_on_windows
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError, SourceError, SpecError, TooManySkipped
from penstock.jobs.digest import Untold, digest_of
from penstock.kernels.library import Ints
from penstock.observe.progress import Progress
from penstock.sources.measures import FAILED, FORM, RECORD, WORK, Kind, Measures, different, digests, read_measures, read_record

_WHERE = "measure()"
CHUNK_SIZE = 65_536
"""So many elements are computed again after a kill, at most, and those of a batch. A multiple of 8, as bits of a column lie in bytes."""
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
    num_workers: int | Literal["auto"] | None = None,
    executor: Literal["processes", "threads"] = "processes",
    on_error: Policy | None = None,
    progress: bool | Literal["always"] = False,
    version: str = "",
) -> Measures:
    """Compute numbers of each element of a dataset, in its first pass, and keep them in a folder.

    What is there already is not computed again; after a kill the same call goes on. Blocks until all is done, also while another job
    measures into the folder. May be called from any thread.

    Args:
        dataset: its positions are known before reading, and it has an end.
        folder: it is made when it is not there.
        functions: by name of a column. Each takes an element and returns a whole number in 0..2**46-1 or a boolean. Functions, here and
            in the dataset, are known again by their names; lambdas and the like, here, by source text and values too.
        num_workers: how many at once; None or "auto" is one per available CPU, 0 computes in the caller's thread.
        executor: "processes", or "threads", for functions that cannot be sent to others.
        on_error: what is done about an element that fails: the dataset's own policy by default. `ps.Skip(...)` leaves it out: its numbers
            are 0, and the column of the failed marks it. A limit is for all of the dataset, a rate is judged at the end.
        version: of the functions, as `cache(version=)` has it: give another one after a change of what one does.
        progress: True draws a bar on stderr if that is a terminal; "always" writes elsewhere too.

    Returns:
        The columns, mapped.

    Raises:
        PlanError: an argument cannot be used; the folder holds numbers of another dataset or of other functions.
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
    known = sameness(dataset._root, version)
    if os.path.exists(os.path.join(path, RECORD)):
        return read_measures(path, known, length, told)
    os.makedirs(path, exist_ok=True)
    sync_folder(os.path.dirname(path))
    with held(os.path.join(path, _LOCK)):
        if not os.path.exists(os.path.join(path, RECORD)):  # another job had the lock, and has made it
            job = _Job(path, dataset, dict(functions), length, policy)
            job.prepare(told, version)
            workers = {
                "num_workers": "auto" if num_workers is None else num_workers,
                "executor": executor if num_workers != 0 else "inline",
            }
            job.compute(workers, progress)
            job.join({"identity": digests(known), "length": length}, told)
    return read_measures(path, known, length, told)


def _policy_of(dataset: Any, on_error: Policy | None) -> Policy:
    """Return what is done about an element that fails.

    Raises:
        PlanError: it is no policy, or one that puts another element in place of a failing one.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where=_WHERE, fix="wrap it with ps.from_source or ps.from_arrays")
    policy = checked_policy(dataset._options.on_error if on_error is None else on_error, "on_error", _WHERE)
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
    check.indexable(dataset._root, "measure", "measure before the filter")
    if check.is_of_rank(dataset._root):
        raise PlanError(
            "each rank would measure its own part, into the same folder",
            where=_WHERE,
            fix="measure first, and call shard_by_rank() behind it",
        )
    if not functions:
        raise PlanError("no function is given", where=_WHERE, fix="name what is computed, such as length=fn")
    told = {}
    for name, function in functions.items():
        if not isinstance(name, str) or not name.isidentifier() or name == FAILED:
            raise PlanError(f"{name!r} is no name of a column", where=_WHERE, fix=f"give an identifier other than {FAILED!r}")
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
    """Return a JSON-able record of what was measured: the lines of the plan as a saved state has them, and the fingerprints of the data.

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
    return {**identity(root, version), "plan": lines(root, saved=True)}


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
    """What a worker is given. Called with number and element; returns int64 [1 + 2 * columns]: number, values, which are booleans.

    One array, as a field of a batch costs more than ten of its numbers.
    """

    functions: dict[str, Number]

    def __call__(self, numbered: tuple[int, Any]) -> Ints:
        number, element = numbered
        values = []
        for name, function in self.functions.items():
            try:
                value = function(element)
            except Exception as error:
                add_note(error, f"penstock: measuring {name!r} of element {number}, with {function_name(function)}")
                raise
            if not isinstance(value, (bool, np.bool_, int, np.integer)) or not 0 <= int(value) < 2**46:
                raise SpecError(
                    f"{function_name(function)} returned {value!r}, of type {type(value).__name__}",
                    where=f"measure({name}=...), element {number}",
                    fix="return a whole number in 0..2**46-1, or a boolean",
                )
            values.append(value)
        return np.array((number, *values, *(isinstance(value, (bool, np.bool_)) for value in values)), np.int64)


class _Job:
    """One job in a folder whose lock is held."""

    def __init__(self, path: str, dataset: Dataset, functions: dict[str, Number], length: int, policy: Policy) -> None:
        self._path, self._work = path, os.path.join(path, WORK)
        self._dataset, self._functions, self._length, self._policy = dataset, functions, length, policy

    def prepare(self, told: dict[str, str], version: str) -> None:
        """Begin, or go on with what an earlier job has left; the size of a chunk is then its own.

        Raises:
            PlanError: it was of another dataset or other functions.
        """
        self._inputs, self._version = digests(_with_files(self._dataset._root, version)), version
        run: dict[str, Any] = {**self._inputs, "form": FORM, "length": self._length, "functions": told, "chunk_size": CHUNK_SIZE}
        path = os.path.join(self._work, _RUN)
        if os.path.exists(path):
            found = read_record(path)
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
        self._parts = [os.path.join(self._work, f"{begin:015d}.npz") for begin in range(0, self._length, self._size)]

    def compute(self, workers: dict[str, Any], progress: bool | Literal["always"]) -> None:
        """Write the chunks behind the last finished one.

        Raises:
            SourceError: an input file changed meanwhile.
            TooManySkipped: more elements failed than the policy allows.
            BaseException: of an element that could not be measured.
        """
        done = next((place for place, part in enumerate(self._parts) if not os.path.exists(part)), len(self._parts))
        num_failed = sum(int(self._stored(part, FAILED).sum()) for part in self._parts[:done])
        if done < len(self._parts):
            begin = done * self._size
            root = Dataset(check.leaving_out(self._dataset._root), self._dataset._options).skip(begin).enumerate(begin)
            ds = root.map(_Numbers(self._functions), name="measure").batch(math.gcd(self._size, _BATCH))
            shown = progress == "always" or (progress and sys.stderr and sys.stderr.isatty())
            bar = Progress("measuring", self._length - begin, unit="elements") if shown else nullcontext()
            with opened(ds, self._policy, output="numpy", **workers) as batches, bar as drawn:
                for part, chunk in zip(self._parts[done:], self._chunks(begin, batches), strict=True):
                    publish(part, partial(_save, chunk))
                    num_failed += int(chunk[FAILED].sum())
                    self._check_losses(num_failed)
                    if drawn is not None:
                        drawn.advance(len(chunk[FAILED]))
        self._check_losses(num_failed, at_end=True)
        if digests(_with_files(self._dataset._root, self._version)) != self._inputs:
            raise SourceError(
                "an input file changed while it was measured: it has another size, time or inode than at the beginning",
                where=f"measure() into {self._path!r}",
                fix="remove the folder and measure again, when nothing writes to the input any more",
            )

    def _chunks(self, first: int, batches: Iterator[Any]) -> Iterator[dict[str, NDArray[Any]]]:
        """Put batches together to chunks. What no batch has has failed; a batch of which all failed does not come."""
        batch = next(batches, None)
        for begin in range(first, self._length, self._size):
            count = min(self._size, self._length - begin)
            values = np.zeros((len(self._functions), count), np.int64)
            bools, failed = np.ones(len(self._functions), np.bool_), np.ones(count, np.bool_)
            while batch is not None and batch[0, 0] < begin + count:
                numbers, columns, are_bools = np.split(batch.T, (1, 1 + len(values)))
                places = numbers[0] - begin
                values[:, places], failed[places] = columns, False
                bools &= are_bools.all(1)
                batch = next(batches, None)
            yield {**dict(zip(self._functions, values, strict=True)), FAILED: failed, _BOOLS: bools}

    def _check_losses(self, num_failed: int, *, at_end: bool = False) -> None:
        """Refuse a result of which too much is missing, over all runs; a rate is judged at the end.

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

    def join(self, head: dict[str, Any], told: dict[str, str]) -> None:
        """Write the columns of the chunks, then the record; remove the chunks.

        Raises:
            OSError: a file cannot be read, written or removed.
        """
        num_failed = sum(int(self._stored(part, FAILED).sum()) for part in self._parts)
        are_bools = np.ones(len(told), np.bool_)
        for part in self._parts:
            are_bools &= self._stored(part, _BOOLS)
        are_bools &= num_failed < self._length
        columns = {}
        for (name, function), is_bool in zip(told.items(), are_bools, strict=True):
            largest = max((int(self._stored(part, name).max()) for part in self._parts), default=0)
            kind: Kind = "bits" if is_bool else "i4" if largest < 2**31 else "i8"
            columns[name] = {**self._join(name, kind), "function": function}
        failed = {FAILED: self._join(FAILED, "bits")} if num_failed else {}
        record = {"form": FORM, **head, "columns": columns, "num_failed": num_failed, "failed": failed}
        publish(os.path.join(self._path, RECORD), json.dumps(record, indent=1).encode())
        for name in sorted(os.listdir(self._work), key=lambda name: (name == _RUN, name)):  # as long as it stands, they are known
            os.unlink(os.path.join(self._work, name))
        os.rmdir(self._work)
        sync_folder(self._path)

    def _join(self, name: str, kind: Kind) -> dict[str, Any]:
        """Write a column, and return what the record says of it."""
        crc = 0

        def fill(file: BinaryIO) -> None:
            nonlocal crc
            for part in self._parts:
                values = self._stored(part, name)
                data = (np.packbits(values != 0, bitorder="little") if kind == "bits" else values.astype(f"<{kind}")).tobytes()
                crc = zlib.crc32(data, crc)
                file.write(data)

        publish(os.path.join(self._path, f"{name}.{kind}"), fill)
        return {"dtype": kind, "crc32": crc}

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
