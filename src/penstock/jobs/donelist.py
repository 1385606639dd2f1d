"""The file of the jobs that are done: one line of JSON each, so that a run that was killed goes on where it was."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from penstock._contracts.storage import lock_file, write_all
from penstock._system.process import refuse_on_windows
from penstock.errors import PlanError, StateDamaged, StateMismatch
from penstock.jobs.digest import Untold, digest_of

_FORM = 2
_LARGEST = 1 << 14
_CARRIED = "values (defaults, closure, arguments of a partial, self, attributes)"


class NotKept:
    """Stands for the result of a job that an earlier run has done and did not keep: it was large, or of another type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOT_KEPT"

    def __reduce__(self) -> str:
        return "NOT_KEPT"


NOT_KEPT = NotKept()


class DoneList:
    """Notes jobs as they are done. A line is written whole by one call, so a kill cuts the last line at most. Used from one thread.

    The first line says which function and jobs the others are of: {"penstock_jobs": 2, "function": ..., "count": ..., "jobs": hash}, and
    "source": hash, or "version": ... in its place. Each other line is {"index": ..., "result": ..., "crc32": ...}, without "result" when
    that was not kept.

    Attributes:
        done: results by index, `NOT_KEPT` where there is none.
    """

    def __init__(self, path: str, function: str, jobs: Sequence[Any], told_by: Mapping[str, str]) -> None:
        """Open or make the file, and read what is done.

        Args:
            path: of the file.
            function: its name.
            jobs: all of them.
            told_by: what else tells the function: {"source": hash} or {"version": what the user says}.

        Raises:
            StateMismatch: it is of other jobs or another function, or no done-list at all.
            StateDamaged: a line before the last one cannot be read.
            PlanError: another run is writing it, or a job cannot be told from others.
            OSError: the file cannot be read or written.
        """
        refuse_on_windows("parallel_jobs(done=...)", "leave it out")
        self.path = path
        digests = [digest_of_job(job, number) for number, job in enumerate(jobs)]
        head = {"penstock_jobs": _FORM, "function": function, "count": len(jobs), "jobs": digest_of(digests), **told_by}
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _lock(self._descriptor, path)
            self.done: dict[int, Any] = {}
            self._read(head)
        except BaseException:
            self.close()
            raise

    def add(self, index: int, result: Any) -> None:
        """Write a line for a job that is done. Behind a line that could not be written, nothing is: the list could not be read again.

        Raises:
            OSError: the file cannot be written.
        """
        record: dict[str, Any] = {"index": index}
        with suppress(NoForm, RecursionError):
            form = as_json(result)
            if len(json.dumps(form)) <= _LARGEST:
                record["result"] = form
        self._write({**record, "crc32": _crc(record)})

    def close(self) -> None:
        """Close the file; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _write(self, record: Mapping[str, Any]) -> None:
        data = json.dumps(record).encode() + b"\n"
        try:
            if self._descriptor >= 0:
                write_all(self._descriptor, data)
        except OSError as error:
            self.close()
            error.add_note(f"penstock: writing the done-list {self.path!r}")
            raise

    def _read(self, head: dict[str, Any]) -> None:
        with open(self.path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        if not lines or (len(lines) == 1 and json.dumps(head).encode().startswith(lines[0])):  # nothing yet, or cut by a kill
            os.ftruncate(self._descriptor, 0)
            self._write(head)
            return
        self._check_head(lines[0], head)
        good = len(lines[0])
        for number, line in enumerate(lines[1:], 2):
            record = _record(line)
            if record is not None and 0 <= record["index"] < head["count"]:
                self.done[record["index"]] = record.get("result", NOT_KEPT)
                good += len(line)
            elif number < len(lines):
                raise StateDamaged(
                    f"line {number} of {len(lines)} cannot be read: {line[:80]!r}",
                    where=f"done-list {self.path!r}",
                    fix="take the line out: its job is then done again; a kill damages the last line only, so look at the disk",
                )
        os.ftruncate(self._descriptor, good)

    def _check_head(self, line: bytes, head: dict[str, Any]) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "penstock_jobs" not in found:
            raise self._mismatch(f"this is no done-list: it begins with {line[:60]!r}")
        if found["penstock_jobs"] != _FORM:
            raise StateMismatch(
                f"another version of Penstock wrote this done-list, in form {found['penstock_jobs']!r}: it tells functions and jobs in "
                f"another way than form {_FORM}, so nothing can be compared",
                where=f"done-list {self.path!r}",
                fix="finish it with that version, or give another file to begin anew",
            )
        for name, words in (("function", "function"), ("count", "number of jobs"), ("version", "version")):
            if found.get(name) != head.get(name):
                raise self._mismatch(f"the done-list is of another {words}: {found.get(name)!r}, and now it is {head.get(name)!r}")
        if found.get("source") != head.get("source"):
            raise self._mismatch(f"the done-list is of {head['function']!r} with another source text or other {_CARRIED}")
        if found.get("jobs") != head["jobs"]:
            raise self._mismatch(f"the done-list is of another job list, also of {head['count']} jobs")

    def _mismatch(self, what: str) -> StateMismatch:
        return StateMismatch(
            what,
            where=f"done-list {self.path!r}",
            fix="give the jobs and the function that it was begun with, or another file to begin anew",
        )


def digest_of_job(job: Any, number: int) -> str:
    """Return the hash of one job.

    Raises:
        PlanError: it holds something that has no content, or itself.
    """
    try:
        return digest_of(job)
    except Untold as error:
        raise PlanError(
            f"job {number}, a {type(job).__name__}, cannot be told from others in another run: {error}",
            where="parallel_jobs(done=...)",
            fix="give jobs of numbers, texts, paths, arrays and containers of them, and look up the rest in the function",
        ) from error


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line, with the result itself, or None when it cannot be trusted."""
    try:
        record: dict[str, Any] = json.loads(line)
        if record.pop("crc32") != _crc(record) or type(record["index"]) is not int or not line.endswith(b"\n"):
            return None
        if "result" in record:
            record["result"] = from_json(record["result"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return record


def _crc(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _lock(descriptor: int, path: str) -> None:
    """Keep other runs away. The lock is the kernel's: it ends with this process, however that ends."""
    try:
        lock_file(descriptor)
    except BlockingIOError:
        raise PlanError(
            "another run is writing this done-list", where=f"done-list {path!r}", fix="wait for it to end, or give another file"
        ) from None
    except OSError:  # a file system without locks
        return


class NoForm(ValueError):
    """A value, or a part of it, has no form here. Internal."""


def as_json(value: Any) -> Any:
    """Return what `json` can write for a result.

    Raises:
        NoForm: there is nothing; a RecursionError says that it holds itself.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [as_json(child) for child in value]
    if kind is tuple:
        return {"tuple": [as_json(child) for child in value]}
    if kind is dict:
        return {"dict": [[as_json(key), as_json(child)] for key, child in value.items()]}
    if kind is bytes:
        return {"bytes": _text(value)}
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return {"array": [value.dtype.str, list(value.shape), _text(value.tobytes())]}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {"scalar": [value.dtype.str, _text(value.tobytes())]}
    raise NoForm


def from_json(form: Any) -> Any:
    """Return the result.

    Raises:
        ValueError: it is no form of `as_json`; a TypeError says the same.
    """
    if isinstance(form, list):
        return [from_json(child) for child in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    match kind:
        case "tuple":
            return tuple(from_json(child) for child in content)
        case "dict":
            return {from_json(key): from_json(child) for key, child in content}
        case "bytes":
            return base64.b64decode(content, validate=True)
        case "array":
            dtype, shape, data = content
            return np.frombuffer(base64.b64decode(data, validate=True), dtype).reshape(shape).copy()
        case "scalar":
            dtype, data = content
            return np.frombuffer(base64.b64decode(data, validate=True), dtype)[0]
    raise NoForm


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
