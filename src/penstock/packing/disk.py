"""Every step that packing makes on a disk, the destination while it is packed, and what packed files were made of.

All steps are in one place, so that each of them can be made to fail, and their order be replayed. The destination: who may write there,
what is finished, and what an earlier run left. The origin says, beyond the manifest, whether a rerun may take packed files for its own.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.storage import lock_file
from penstock._plan.base import Node, sources, walk
from penstock._plan.facts import input_files
from penstock._storage.sameness import stamps
from penstock.errors import PackError, PlanError, SourceError
from penstock.jobs.digest import Untold, digest_of
from penstock.kernels.library import Ints
from penstock.sources.arrays import ArraySource, IndexableSource
from penstock.sources.files import ImageFolderSource
from penstock.sources.parquet import TableSource

KEYS = ("form", "inputs", "functions", "data")
"""Of the record."""

_ORIGIN_FORM = 3
"""Version 1 hashed byte code, version 2 looked at no ctime."""

_WORDS = {
    "form": "another version of Penstock made it, which compares functions and data in another way: nothing tells whether it is the same",
    "inputs": "the input files have changed",
    "functions": "its functions are others by their source text, or by the values that they carry (or another Python ran them)",
    "data": "the arrays or objects in memory have changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the elements come from.

    Attributes:
        record: JSON-able; "inputs": number and digest of the input files, by their stamps; "functions": a hash of the source
            text and values of all functions; "data": one of arrays and objects in memory. A hash is None where nothing tells it.
        untold: what could not be told, and why; "" for nothing.
    """

    record: dict[str, Any]
    untold: str = ""

    def of_another_form(self, found: dict[str, Any] | None) -> str:
        """Say that the record of an earlier packing cannot be compared with this one, "" if it can or if there is none."""
        return "" if found is None or found.get("form") == _ORIGIN_FORM else _WORDS["form"]

    def difference(self, found: dict[str, Any] | None) -> str:
        """Say in what an earlier packing was of another origin, "" if it was of this one.

        Args:
            found: its record, or more; None when nothing says.
        """
        if found is None:
            return "nothing says which input and functions it was made of"
        for key in KEYS:
            if self.record[key] != found.get(key):
                return _WORDS[key]
        return f"nothing tells whether it was made by the same: {self.untold}; version= would, given in both runs" if self.untold else ""


def origin_of(root: Node, inputs: Inputs, version: str | int = "") -> Origin:
    """Find out what the elements of a plan come from. Reads arrays and lists that are in memory; memory maps are input files.

    Blocks for about a second per gigabyte of these. With a `version`, which stands elsewhere, functions are not looked at.
    """
    untold: list[str] = []
    nodes = [] if version else [node for node in walk(root) if node.children and not node.is_hint]
    functions = [_told(node.line(), node.values(), untold) for node in nodes]
    data = [_told(node.source.label(), _held(node.source), untold) for node in sources(root)]
    record = {
        **origin_of_stream(inputs).record,
        "functions": None if version or None in functions else digest_of(functions),
        "data": None if None in data else digest_of(data),
    }
    return Origin(record=record, untold="" if version else "; ".join(untold))


def origin_of_stream(inputs: Inputs) -> Origin:
    """Return the origin of a stream: of its input files alone, as a rerun compares all that it gives."""
    return Origin(
        record={"form": _ORIGIN_FORM, "inputs": {"count": inputs.num_files, "digest": inputs.digest}, "functions": None, "data": None}
    )


def _told(words: str, value: Any, untold: list[str]) -> str | None:
    try:
        return digest_of(value, sources=True)
    except Untold as error:
        untold.append(f"{words} holds something that has no content to compare ({error})")
        return None


def _held(source: Any) -> tuple[Any, ...]:
    """Return what a source has in memory; the other sources read files, and their fingerprints say how."""
    if isinstance(source, (ArraySource, TableSource)):
        return (source.held(),)
    if isinstance(source, IndexableSource):
        own = source.fingerprint().get("fingerprint")
        return (source.held() if own is None else own,)
    return ()


class Inputs(NamedTuple):
    """What the files of a dataset were like at one moment.

    Attributes:
        num_files: how many there are.
        digest: of these stamps.
        stamps: int64 [num_files, 3], see `penstock._storage.sameness`.
    """

    num_files: int
    digest: str
    stamps: Ints


def look(root: Node) -> Inputs:
    """Look at all files that the sources of a plan know of; about 3 us each."""
    found = stamps(input_files(root))
    return Inputs(len(found), hashlib.sha256(found.tobytes()).hexdigest()[:32], found)


def changed(root: Node, before: Inputs) -> SourceError | None:
    """Return what is to be raised when a file is not what it was; None when all are."""
    now = look(root)
    if now.digest == before.digest:
        return None
    at = np.flatnonzero((now.stamps != before.stamps).any(1)) if now.num_files == before.num_files else np.arange(1)
    path = next((path for number, path in enumerate(input_files(root)) if number == at[0]), "")
    others = f" and {len(at) - 1} more files" if len(at) > 1 else ""
    return SourceError(
        f"{path!r}{others} changed while it was packed: it has another size, time or inode than at the beginning",
        where="pack()",
        fix="remove the destination and pack again, when nobody writes to the input any more",
    )


def check_apart(root: Node, dest: str) -> None:
    """Refuse a destination inside a folder that a source lists whole: in the next run it would be input.

    Raises:
        PlanError: it is.
    """
    for node in sources(root):
        folder = node.source.folder if isinstance(node.source, ImageFolderSource) else ""
        inside = os.path.relpath(os.path.realpath(dest), os.path.realpath(folder or dest))
        if not inside.startswith("."):
            raise PlanError(
                f"the destination lies inside {folder!r}, which is read: it would be one more class",
                where=f"pack() to {dest!r}",
                fix="give a folder outside of it",
            )


_BUFFER_BYTES = 1 << 20
_AHEAD_BYTES = 4 << 20
_SYNC_FILE_RANGE_WRITE = 2
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class Disk:
    """The steps themselves. Tests give one that fails, dies or takes notes at the n-th step. Picklable; safe from several threads."""

    def create(self, path: str) -> int:
        """Make a new file and return its descriptor; one that is there is an error."""
        return os.open(path, _FLAGS, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of `data` and return how many bytes."""
        return os.write(descriptor, data)

    def sync_ahead(self, descriptor: int) -> None:
        """Have the system begin to write what it holds of a file, so that `sync` waits for its end alone. What goes wrong `sync` tells."""
        begin = _sync_file_range()
        if begin is not None:
            begin(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)

    def sync(self, descriptor: int) -> None:
        """Return when the bytes of the file are on the disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close; on some file systems this is where a write that failed is told."""
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Give a file its name, in place of any file that has it."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder if it is not there, and those above it; return when the names of new ones are on the disk."""
        new, above = [], path
        while not os.path.exists(above):
            new.append(above)
            above = os.path.dirname(above)
        os.makedirs(path, exist_ok=True)
        for folder in reversed(new):
            self.sync_folder(os.path.dirname(folder))

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)


class NoDisk(Disk):
    """Writes nothing: an `OutFile` on it has its size and hash all the same."""

    def create(self, path: str) -> int:
        """Return a number that is no descriptor."""
        return 0

    def write(self, descriptor: int, data: memoryview) -> int:
        """Take all of `data`."""
        return len(data)

    def sync_ahead(self, descriptor: int) -> None:
        """Do nothing."""

    def sync(self, descriptor: int) -> None:
        """Do nothing."""

    def close(self, descriptor: int) -> None:
        """Do nothing."""


class OutFile:
    """A new file that is written from its beginning to its end, through a buffer, with its SHA-256 and its size.

    Has what `pyarrow` asks of a file: `write`, `tell`, `flush`, `closed`, `close`. Used from one thread.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Make the file.

        Raises:
            OSError: as the system says it.
        """
        self._disk, self.path = disk, path
        self._hash = hashlib.sha256()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._held = 0
        self._written = 0
        self.size = 0
        self._descriptor = disk.create(path)

    def write(self, data: Any) -> int:
        """Take all of `data`, a bytes-like object, and return its length; write when a megabyte has come together."""
        view = memoryview(data).cast("B")
        size, held = len(view), self._held + len(view)
        self.size += size
        if held > _BUFFER_BYTES:
            self.flush()
            if size > _BUFFER_BYTES:
                self._write(view)
                return size
            held = size
        self._buffer[held - size : held] = view
        self._held = held
        return size

    def tell(self) -> int:
        """Return how many bytes were taken."""
        return self.size

    def flush(self) -> None:
        """Write what was taken."""
        held, self._held = self._held, 0
        self._write(memoryview(self._buffer)[:held])

    def _write(self, view: memoryview) -> None:
        """Write it all. One call may write less than it was given; what is left is written by the next, or is its error."""
        self._hash.update(view)
        self._written += len(view)
        while view:
            view = view[self._disk.write(self._descriptor, view) :]
        if self._written >= _AHEAD_BYTES:
            self._written = 0
            self._disk.sync_ahead(self._descriptor)

    @property
    def closed(self) -> bool:
        """Tell whether it was closed."""
        return self._descriptor < 0

    @property
    def sha256(self) -> str:
        """Return the hash of what was written."""
        return self._hash.hexdigest()

    def seal(self) -> None:
        """Write the rest, wait for the disk and close: after this, and not before, the file may get its name.

        Raises:
            OSError: of any of these steps. An error of `close` counts too: over a network it may be that of a write.
        """
        self.flush()
        self._disk.sync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close, whether or not all was written; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._disk.close(descriptor)


@cache
def _sync_file_range() -> Any:
    """Return the function of Linux; None elsewhere."""
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


def publish(
    disk: Disk, path: str, folder: str, fill: Callable[[OutFile], object], before_name: Callable[[OutFile], None] | None = None
) -> OutFile:
    """Write a file under another name in `folder`, and name it `path` when all of it is on the disk.

    Args:
        disk: makes the steps.
        path: its final name; a file of this name is replaced.
        folder: where it stands until then; on the same file system.
        fill: writes the content.
        before_name: called when the content is on the disk and the name is not there yet.

    Returns:
        The closed file, for its size and hash.

    Raises:
        OSError: of any step; nothing of the new content stands under `path` then, unless it was the last step, of the folder, that failed.
        BaseException: what `fill` raised.
    """
    part = os.path.join(folder, f"{os.path.basename(path)}.{os.getpid()}-{os.urandom(4).hex()}.part")
    file: OutFile | None = None
    try:
        file = OutFile(disk, part)
        fill(file)
        file.seal()
        if before_name is not None:
            before_name(file)
        disk.rename(part, path)
    except BaseException as error:
        _give_up(file, part, error)
        raise
    disk.sync_folder(os.path.dirname(path))
    return file


def _give_up(file: OutFile | None, part: str, error: BaseException) -> None:
    """Close and remove the unfinished file; what goes wrong with that is a note of the error that made it necessary."""
    if file is not None:
        try:
            file.close()
        except OSError as other:
            error.add_note(f"penstock: and then, closing {part!r}: {other}")
    try:
        os.unlink(part)
    except FileNotFoundError:  # it was not made, or it has its name already
        pass
    except OSError as other:
        error.add_note(f"penstock: and then, removing {part!r}: {other}")


WORK = ".packing"
"""The folder inside the destination for what is not finished; it is removed at the end."""

_RUN = "run.json"
_NOTE = ".json"
_SHARD = re.compile(r"(?P<name>.+?)-(\d{5}-of-\d{5}|\d{6})\.[a-z.]+")
_READ_BYTES = 1 << 20


class Folder:
    """Paths and small files of a destination. Picklable: workers have one too.

    Args:
        path: the destination, absolute.
        disk: makes the steps.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        self.path, self.disk = path, disk
        self.work = os.path.join(path, WORK)

    def file(self, name: str) -> str:
        """Return the path of a finished file."""
        return os.path.join(self.path, name)

    def prepare(self, run: dict[str, Any], names: list[str], origin: Origin) -> None:
        """Make ready for a run, which goes on with what an earlier one of the same kind has finished. Call it with the lock held.

        What an earlier run of another kind has left is removed if it had not finished a shard. Another policy makes no other kind while no
        finished shard lacks an element: its bytes would be the same.

        Args:
            run: what the bytes of the shards depend on, JSON-able, with "id", a number of this run alone.
            names: of the files that it will write.
            origin: what their elements come from; its record belongs to the run.

        Raises:
            PackError: other files are there that it would replace, or a part of a run of another kind.
            OSError: the folder cannot be written.
        """
        run = {**run, **origin.record}
        found = self.run()
        if found is None or (other := self._other(self._with_policy(found, run), run, origin)):
            if found is not None and self._has_notes():
                raise PackError(
                    f"the folder holds an unfinished packing of something else: {other}",
                    where=f"pack() to {self.path!r}",
                    fix=f"give what it was begun with, or another folder; or remove {WORK!r} and the shards",
                )
            there = [name for name in names if os.path.lexists(self.file(name))]
            if there:
                raise PackError(
                    f"{there[0]!r} is there already, and nothing says what it is",
                    where=f"pack() to {self.path!r}",
                    fix="give another folder, or remove the file",
                )
        else:
            for name in filter(os.path.lexists, map(self.file, found.get("names", ()))):  # of a stream, which is packed again
                self.disk.remove(name)
        other_shards = strangers(self.path, names)
        if other_shards:
            raise PackError(
                f"{other_shards[0]!r} is there, which looks like a shard and is none of this dataset",
                where=f"pack() to {self.path!r}",
                fix="remove it, give another folder, or another name=",
            )
        self.disk.make_folder(self.work)
        for name in sorted(os.listdir(self.work)):
            if name.endswith(".part"):
                self.disk.remove(os.path.join(self.work, name))
        self._write(os.path.join(self.work, _RUN), run)
        self.disk.sync_folder(self.path)

    def take_back(self, run: dict[str, Any], notes: list[dict[str, Any]], origin: Origin) -> None:
        """Make a finished packing an unfinished one: its manifest stays until it is written again. Call it with the lock held.

        Args:
            run: as for `prepare`.
            notes: of its shards.
            origin: as for `prepare`.

        Raises:
            OSError: the folder cannot be written.
        """
        if not self.is_of(run, origin) and self._has_notes():
            return  # of an unfinished run of another kind; `prepare` says so
        self.disk.make_folder(self.work)
        for note in notes:
            self._write(os.path.join(self.work, note["name"] + _NOTE), note)
        self._write(os.path.join(self.work, _RUN), {**run, **origin.record})
        self.disk.sync_folder(self.path)

    def is_of(self, run: dict[str, Any], origin: Origin) -> bool:
        """Tell whether what is unfinished here is of such a run; also when nothing is."""
        found = self.run()
        return found is None or not self._other(found, {**run, **origin.record}, origin)

    def run(self) -> dict[str, Any] | None:
        """Return what the unfinished run here is, None when there is none."""
        return self._read(os.path.join(self.work, _RUN))

    def check_run(self, run_id: str) -> None:
        """Make sure that this run is still the one at work here; call it with the shared lock held.

        Raises:
            PackError: the packer was killed, and another has begun.
        """
        found = self.run()
        if found is None or found.get("id") != run_id:
            raise PackError(
                "another packer has begun in this folder", where=f"pack() to {self.path!r}", fix="nothing: this worker's packer is gone"
            )

    def _has_notes(self) -> bool:
        return os.path.isdir(self.work) and any(name.endswith(_NOTE) and name != _RUN for name in os.listdir(self.work))

    def _with_policy(self, found: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
        """Return the run that was found with the policy of another one, if that makes no difference to what it has finished."""
        notes = [self._read(os.path.join(self.work, name)) or {} for name in os.listdir(self.work) if name.endswith(_NOTE) and name != _RUN]
        if any(note.get("skipped") for note in notes) or "options" not in found or "options" not in run:
            return found
        return {**found, "options": {**found["options"], "on_error": run["options"]["on_error"]}}

    def _other(self, found: dict[str, Any], run: dict[str, Any], origin: Origin) -> str:
        wanted = {key: value for key, value in run.items() if key not in ("id", *KEYS)}
        return origin.of_another_form(found) or difference(found, wanted) or origin.difference(found)

    # -- shards -------------------------------------------------------------------------------------------------------------------

    def publish(self, name: str, fill: Any, note: Any) -> OutFile:
        """Write a shard; its note is on the disk before it has its name.

        Args:
            name: of the shard.
            fill: writes the content to the `OutFile`.
            note: returns what is to be noted of the closed file, JSON-able.

        Raises:
            OSError: any step failed. Nothing that is cut stands under the name.
        """
        note_path = os.path.join(self.work, name + _NOTE)
        return publish(self.disk, self.file(name), self.work, fill, lambda file: self._write(note_path, note(file)))

    def give_names(self, parts: Sequence[str], names: Sequence[str]) -> None:
        """Give all shards of the run their names, one after the other; a rerun removes those that have theirs.

        Raises:
            OSError: any step failed.
        """
        self._write(os.path.join(self.work, _RUN), {**(self.run() or {}), "names": list(names)})
        for part, name in zip(parts, names, strict=True):
            self.disk.rename(part, self.file(name))
        self.disk.sync_folder(self.path)

    def finished(self, name: str) -> dict[str, Any] | None:
        """Return the note of a shard that an earlier run has finished, None when it must be written.

        Raises:
            OSError: a file that is there cannot be read.
        """
        note = self._read(os.path.join(self.work, name + _NOTE))
        path = self.file(name)
        if note is None or not os.path.isfile(path) or os.path.getsize(path) != note["size"] or sha256_of(path) != note["sha256"]:
            return None
        return note

    def write_manifest(self, name: str, manifest: dict[str, Any]) -> None:
        """Write the manifest, the last file of all.

        Raises:
            OSError: any step failed.
        """
        self._write(self.file(name), manifest, indent=1)

    def write_origin(self, name: str, origin: Origin) -> None:
        """Write what the manifest `name` says nothing of; before it.

        Raises:
            OSError: any step failed.
        """
        self._write(self.file(_origin_name(name)), origin.record)

    def origin(self, name: str) -> dict[str, Any] | None:
        """Return what was written beside the manifest `name`, None for nothing.

        Raises:
            PackError: it cannot be read.
        """
        return self._read(self.file(_origin_name(name)))

    def clear(self) -> None:
        """Remove what was needed until here.

        Raises:
            OSError: it cannot be removed.
        """
        if not os.path.isdir(self.work):
            return
        # The run last: as long as it stands, a rerun knows what the notes are of.
        names = sorted(os.listdir(self.work), key=lambda name: (name == _RUN, name))
        for name in names:
            self.disk.remove(os.path.join(self.work, name))
        self.disk.remove_folder(self.work)
        self.disk.sync_folder(self.path)

    # -- small files --------------------------------------------------------------------------------------------------------------

    def _write(self, path: str, record: dict[str, Any], indent: int | None = None) -> None:
        data = (json.dumps(record, indent=indent, ensure_ascii=True, allow_nan=False) + "\n").encode()
        publish(self.disk, path, self.work, lambda file: file.write(data))

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            with open(path, "rb") as file:
                record = json.loads(file.read())
        except FileNotFoundError:
            return None
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise PackError(f"{path!r} cannot be read", where=f"pack() to {self.path!r}", fix=f"remove {self.work!r} and the shards")
        return record


def lock_folder(path: str, *, shared: bool) -> int:
    """Lock a destination and return the descriptor that holds the lock: it ends when that is closed, however the process ends.

    The packer locks alone, to know that no process is at work, not even a worker of a packer that was killed, and then goes on with the
    shared lock that its workers take as well.

    Raises:
        PackError: another packer is at work there.
        OSError: the folder cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for is_shared in (True,) if shared else (False, True):
            lock_file(descriptor, shared=is_shared)
    except BlockingIOError:
        os.close(descriptor)
        raise PackError(
            "another packer is at work in this folder, or its workers have not ended yet",
            where=f"pack() to {path!r}",
            fix="wait for it to end, or give another folder",
        ) from None
    except OSError:  # a file system without locks
        pass
    return descriptor


def sha256_of(path: str) -> str:
    """Return the hash of a file.

    Raises:
        OSError: it cannot be read.
    """
    import hashlib

    state = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            state.update(data)
    return state.hexdigest()


def strangers(folder: str, shards: Sequence[str]) -> list[str]:
    """Return what stands in a folder under such a name as the shards of a packed dataset have, and is none of them."""
    named = _SHARD.fullmatch(shards[0]) if shards else None
    if named is None:
        return []
    pattern = re.compile(re.escape(named["name"]) + r"-\d{5,6}(-of-\d{5})?(\.[a-z]+)*" + re.escape(os.path.splitext(shards[0])[1]))
    return [found for found in sorted(os.listdir(folder)) if pattern.fullmatch(found) and found not in shards]


def _origin_name(manifest: str) -> str:
    return f".{manifest.removesuffix('-manifest.json')}-origin.json"


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Say in which key a record is another than it should be, "" for none; of a dict inside it the key that differs."""
    for key, value in json.loads(json.dumps(wanted)).items():
        old = found.get(key)
        if old == value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            inner = next(name for name in (*value, *old) if old.get(name) != value.get(name))
            return f"its {key} is another: {inner} was {_short(old.get(inner))}, now {_short(value.get(inner))}"
        return f"its {key} is another: {_short(old)}, now {_short(value)}"
    return ""


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
