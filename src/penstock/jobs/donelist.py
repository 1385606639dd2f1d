"""The file of the jobs that are done: one line of JSON each, so that a run that was killed goes on where it was."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.errors import PlanError, StateDamaged, StateMismatch
from penstock.jobs.identity import digest_of, digest_of_all
from penstock.jobs.keeping import as_json, from_json

__all__ = ["NOT_KEPT", "DoneList", "NotKept"]

_FORM = 1
_LARGEST = 1 << 14
_CARRIED = "values (arguments of a partial, self, attributes, values or code of an inner function)"


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

    The first line says which function and jobs the others are of: {"penstock_jobs": 1, "function": ..., "count": ..., "jobs": hash}, and
    with "carries": hash when there is more to the function than its name. Each other line is
    {"index": ..., "job": hash, "result": ..., "crc32": ...}, without "result" when that was not kept.
    """

    def __init__(self, path: str, function: str, jobs: Sequence[Any], carries: str | None = None) -> None:
        """Open or make the file, and read what is done.

        Args:
            path: of the file.
            function: its name.
            jobs: all of them.
            carries: what `digest_of_function` says of the function.

        Raises:
            StateMismatch: it is of other jobs or another function, or no done-list at all.
            StateDamaged: a line before the last one cannot be read.
            PlanError: another run is writing it, or a job cannot be told from others.
            OSError: the file cannot be read or written.
        """
        self.path = path
        self._digests = [digest_of(job, number) for number, job in enumerate(jobs)]
        head: dict[str, Any] = {"penstock_jobs": _FORM, "function": function, "count": len(jobs), "jobs": digest_of_all(self._digests)}
        if carries is not None:
            head["carries"] = carries
        self._broken = False
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            _lock(self._descriptor, path)
            self.done: dict[int, Any] = {}
            """Results by index, `NOT_KEPT` where there is none."""
            self._read(head)
        except BaseException:
            self.close()
            raise

    def add(self, finished: Iterable[tuple[int, Any]]) -> None:
        """Write lines for jobs that are done, given as (index, result).

        Behind a line that was not written whole, nothing is: the list could not be read again. Those jobs will be done once more.

        Raises:
            OSError: the file cannot be written.
        """
        if not self._broken:
            self._write("".join(map(self._line, finished)).encode())

    def close(self) -> None:
        """Close the file; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _line(self, item: tuple[int, Any]) -> str:
        index, result = item
        record: dict[str, Any] = {"index": index, "job": self._digests[index]}
        form = as_json(result)
        if form is not None:
            text = json.dumps(form[0])
            if len(text) <= _LARGEST:
                record["result"] = form[0]
        return json.dumps({**record, "crc32": _crc(record)}) + "\n"

    def _write(self, data: bytes) -> None:
        self._broken = True
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            self._broken = False
        except OSError as error:
            error.add_note(f"penstock: writing the done-list {self.path!r}")
            raise

    def _read(self, head: dict[str, Any]) -> None:
        with open(self.path, "rb") as file:
            data = file.read()
        first = json.dumps(head).encode() + b"\n"
        if first.startswith(data):  # nothing yet, or cut by a kill
            os.ftruncate(self._descriptor, 0)
            self._write(first)
            return
        lines = data.splitlines(keepends=True)
        self._check_head(lines[0], head)
        good = len(lines[0])
        for number, line in enumerate(lines[1:], 2):
            record = _record(line)
            if record is None:
                if number == len(lines):
                    break
                raise StateDamaged(
                    f"line {number} of {len(lines)} cannot be read: {line[:80]!r}",
                    where=f"done-list {self.path!r}",
                    fix="take the line out: its job is then done again; a kill damages the last line only, so look at the disk",
                )
            self._take(record, number)
            good += len(line)
        os.ftruncate(self._descriptor, good)

    def _check_head(self, line: bytes, head: dict[str, Any]) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "penstock_jobs" not in found:
            raise self._mismatch(f"this is no done-list: it begins with {line[:60]!r}")
        for name, words in (("penstock_jobs", "form"), ("function", "function"), ("count", "number of jobs")):
            if found.get(name) != head[name]:
                raise self._mismatch(f"the done-list is of another {words}: {found.get(name)!r}, and now it is {head[name]!r}")
        carried, carries = found.get("carries"), head.get("carries")
        if carried != carries:
            of = "with other" if carried is not None else "and an earlier version wrote it, which did not note its"
            raise self._mismatch(f"the done-list is of {head['function']!r} {of} {_CARRIED}")
        if found.get("jobs") != head["jobs"]:
            raise self._mismatch(f"the done-list is of another job list, also of {head['count']} jobs")

    def _take(self, record: dict[str, Any], number: int) -> None:
        index, digest = record["index"], record["job"]
        if not 0 <= index < len(self._digests) or self._digests[index] != digest:
            raise self._mismatch(f"line {number} is of another job list: it has a job {index} that is not in this one")
        self.done[index] = from_json(record["result"]) if "result" in record else NOT_KEPT

    def _mismatch(self, what: str) -> StateMismatch:
        return StateMismatch(
            what,
            where=f"done-list {self.path!r}",
            fix="give the jobs and the function that it was begun with, or another file to begin anew",
        )


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line, or None when it cannot be trusted."""
    try:
        record = json.loads(line)
        crc = record.pop("crc32")
        if crc != _crc(record) or type(record["index"]) is not int or type(record["job"]) is not str or not line.endswith(b"\n"):
            return None
        if "result" in record:
            from_json(record["result"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return record  # type: ignore[no-any-return]


def _crc(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _lock(descriptor: int, path: str) -> None:
    """Keep other runs away. The lock is the kernel's: it ends with this process, however that ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PlanError(
            "another run is writing this done-list", where=f"done-list {path!r}", fix="wait for it to end, or give another file"
        ) from None
    except OSError:  # a file system without locks
        return
