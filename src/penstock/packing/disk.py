"""The destination while it is packed: who may write there, what is finished, and files that get their names when they are complete."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.storage import lock_file
from penstock._plan.base import Node, sources
from penstock._plan.facts import input_files
from penstock._plan.saved import as_before
from penstock._storage.sameness import stamps
from penstock._system.failing import add_note
from penstock.errors import PackError, PlanError, SourceError
from penstock.kernels.library import Ints
from penstock.sources.files import ImageFolderSource


class Inputs(NamedTuple):
    """What the files of a dataset were like at one moment.

    Attributes:
        digest: of the stamps.
        stamps: int64 [num_files, 3], see `penstock._storage.sameness`.
    """

    digest: str
    stamps: Ints


def look(root: Node) -> Inputs:
    """Look at all files that the sources of a plan know of; about 3 us each."""
    found = stamps(input_files(root))
    return Inputs(hashlib.sha256(found.tobytes()).hexdigest()[:32], found)


def check_unchanged(root: Node, before: Inputs) -> None:
    """Make sure that all input files are what they were.

    Raises:
        SourceError: one is not; it is named.
    """
    now = look(root)
    if now.digest == before.digest:
        return
    at = np.flatnonzero((now.stamps != before.stamps).any(1)) if len(now.stamps) == len(before.stamps) else np.arange(1)
    path = next((path for number, path in enumerate(input_files(root)) if number == at[0]), "")
    others = f" and {len(at) - 1} more files" if len(at) > 1 else ""
    raise SourceError(
        f"{path!r}{others} changed while it was packed: it has another size, time or inode than at the beginning",
        where="pack()",
        fix="remove the destination and pack again, when nothing writes to the input any more",
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


class OutFile:
    """A new file that is written from its beginning to its end, through a buffer, with its SHA-256 and its size. Used from one thread."""

    def __init__(self, path: str) -> None:
        """Make the file.

        Raises:
            OSError: as the system says it.
        """
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._buffer = bytearray()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, data: Any) -> int:
        """Take all of `data`, a bytes-like object, and return its length; write when a megabyte has come together."""
        size = memoryview(data).nbytes
        self.size += size
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            self._flush()
        return size

    def _flush(self) -> None:
        """Write what was taken. One call may write less than it was given; what is left is written by the next, or is its error."""
        data, self._buffer = self._buffer, bytearray()
        self._hash.update(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    @property
    def sha256(self) -> str:
        """Return the hash of what was written."""
        return self._hash.hexdigest()

    def seal(self) -> None:
        """Write the rest, wait for the disk and close: after this, and not before, the file may get its name.

        Raises:
            OSError: of any of these steps. An error of `close` counts too: over a network it may be that of a write.
        """
        self._flush()
        os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close, whether or not all was written; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def make_folder(path: str) -> None:
    """Make a folder if it is not there, and those above it; return when the names of new ones are on the disk.

    Raises:
        OSError: as the system says it.
    """
    new, above = [], path
    while not os.path.exists(above):
        new.append(above)
        above = os.path.dirname(above)
    os.makedirs(path, exist_ok=True)
    for folder in reversed(new):
        sync_folder(os.path.dirname(folder))


def sync_folder(path: str) -> None:
    """Return when the names in a folder are on the disk.

    Raises:
        OSError: as the system says it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Fill = Callable[[Sequence[OutFile]], object]


def sums_of(names: Sequence[str], files: Sequence[OutFile]) -> dict[str, Any]:
    """Return names, sizes and hashes of the closed files of a shard: those of the first, and "beside" it the others."""
    first, *beside = ({"name": name, "size": file.size, "sha256": file.sha256} for name, file in zip(names, files, strict=True))
    return {**first, "beside": beside} if beside else first


WORK = ".packing"
"""The folder inside the destination for what is not finished; it is removed at the end."""

_RUN = "run.json"
_NOTE = ".json"
_SHARD = re.compile(r"(?P<name>.+?)-(\d{5}-of-\d{5}|\d{6})\.[a-z.]+")


class Folder:
    """Paths and small files of a destination. Picklable: workers have one too.

    Args:
        path: the destination, absolute.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.work = os.path.join(path, WORK)

    def file(self, name: str) -> str:
        """Return the path of a finished file."""
        return os.path.join(self.path, name)

    def prepare(self, run: dict[str, Any], names: list[str]) -> None:
        """Make ready for a run, which goes on with what an earlier one of the same kind has finished. Call it with the lock held.

        What an earlier run of another kind has left is removed if it had not finished a shard.

        Args:
            run: what the bytes of the shards depend on, JSON-able, with "id", a number of this run alone.
            names: of the files that it will write.

        Raises:
            PackError: other files are there that it would replace, or a part of a run of another kind.
            OSError: the folder cannot be written.
        """
        found, notes = self.run(), self._notes()
        if found is None or (other := self._other(found, run, notes)):
            if found is not None and notes:
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
                os.unlink(name)
        other_shards = strangers(self.path, names)
        if other_shards:
            raise PackError(
                f"{other_shards[0]!r} is there, which looks like a shard and is none of this dataset",
                where=f"pack() to {self.path!r}",
                fix="remove it, give another folder, or another name=",
            )
        make_folder(self.work)
        for name in sorted(os.listdir(self.work)):
            if name.endswith(".part"):
                os.unlink(os.path.join(self.work, name))
        self._write(os.path.join(self.work, _RUN), run)
        sync_folder(self.path)

    def is_of(self, run: dict[str, Any]) -> bool:
        """Tell whether what is unfinished here is of such a run; also when nothing is."""
        found = self.run()
        return found is None or not self._other(found, run, self._notes())

    def run(self) -> dict[str, Any] | None:
        """Return what the unfinished run here is, None when there is none.

        Raises:
            PackError: what says so cannot be read.
        """
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

    def _notes(self) -> list[dict[str, Any]]:
        """Return the notes of the shards that an unfinished run has finished."""
        names = sorted(os.listdir(self.work)) if os.path.isdir(self.work) else []
        return [self._read(os.path.join(self.work, name)) or {} for name in names if name.endswith(_NOTE) and name != _RUN]

    def _other(self, found: dict[str, Any], run: dict[str, Any], notes: list[dict[str, Any]]) -> str:
        wanted = {key: value for key, value in run.items() if key != "id"}
        return difference(found, wanted, lossy=any(note.get("skipped") for note in notes))

    # -- shards -------------------------------------------------------------------------------------------------------------------

    def publish(self, names: Sequence[str], fill: Fill, note: Callable[[Sequence[OutFile]], dict[str, Any]]) -> None:
        """Write the files of a shard; its note is on the disk before they have their names, the first as the last.

        Args:
            names: of the files. The shard is known by the first.
            fill: writes the contents.
            note: returns what is to be noted of the closed files, JSON-able.

        Raises:
            OSError: any step failed. Nothing that is cut stands under the name.
        """
        note_path = os.path.join(self.work, names[0] + _NOTE)
        self._publish([self.file(name) for name in names], fill, lambda files: self._write(note_path, note(files)))

    def give_names(self, parts: Sequence[str], names: Sequence[str]) -> None:
        """Give all shards of a stream their names, one after the other; a rerun removes those that have theirs.

        Raises:
            OSError: any step failed.
        """
        self._write(os.path.join(self.work, _RUN), {**(self.run() or {}), "names": list(names)})
        for part, name in zip(parts, names, strict=True):
            os.replace(part, self.file(name))
        sync_folder(self.path)

    def finished(self, name: str) -> dict[str, Any] | None:
        """Return the note of a shard that an earlier run has finished, None when it must be written.

        Raises:
            OSError: a file that is there cannot be read.
        """
        note = self._read(os.path.join(self.work, name + _NOTE))
        for made in () if note is None else (note, *note.get("beside", ())):
            path = self.file(made["name"])
            if not os.path.isfile(path) or os.path.getsize(path) != made["size"] or sha256_of(path) != made["sha256"]:
                return None
        return note

    def write_manifest(self, name: str, manifest: dict[str, Any], inputs: Inputs) -> None:
        """Write the manifest, the last file of all, and before it a file that says which input files it was made of on this machine.

        Raises:
            OSError: any step failed.
        """
        self._write(self.file(_origin_of(name)), {"inputs": inputs.digest})
        self._write(self.file(name), manifest, indent=1)

    def inputs(self, name: str) -> str | None:
        """Return the digest of the input files that a manifest was made of, None where nothing says it.

        Raises:
            PackError: what says so cannot be read.
        """
        return (self._read(self.file(_origin_of(name))) or {}).get("inputs")

    def clear(self) -> None:
        """Remove what was needed until here.

        Raises:
            OSError: it cannot be removed.
        """
        if not os.path.isdir(self.work):
            return
        # The run last: as long as it stands, a rerun knows what the notes are of.
        for name in sorted(os.listdir(self.work), key=lambda name: (name == _RUN, name)):
            os.unlink(os.path.join(self.work, name))
        os.rmdir(self.work)
        sync_folder(self.path)

    # -- files --------------------------------------------------------------------------------------------------------------------

    def _publish(self, paths: Sequence[str], fill: Fill, before_name: Callable[[Sequence[OutFile]], None] | None = None) -> None:
        """Write files under other names, and name them when all of them is on the disk.

        Args:
            paths: their final names, the first of which is given last; files of these names are replaced.
            fill: writes the contents.
            before_name: called when the contents are on the disk and no name is there yet.

        Raises:
            OSError: of any step; nothing of the new contents stands under the first path then, unless it was the last, of the folder, that
                failed.
            BaseException: what `fill` raised.
        """
        mark = f".{os.getpid()}-{os.urandom(4).hex()}.part"
        parts = [os.path.join(self.work, os.path.basename(path) + mark) for path in paths]
        files: list[OutFile] = []
        try:
            files.extend(map(OutFile, parts))
            fill(files)
            for file in files:
                file.seal()
            if before_name is not None:
                before_name(files)
            for part, path in [*zip(parts, paths, strict=True)][::-1]:
                os.replace(part, path)
        except BaseException as error:
            _give_up(files, parts, error)
            raise
        sync_folder(os.path.dirname(paths[0]))

    def _write(self, path: str, record: dict[str, Any], indent: int | None = None) -> None:
        data = (json.dumps(record, indent=indent, ensure_ascii=True, allow_nan=False) + "\n").encode()
        self._publish([path], lambda files: files[0].write(data))

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


def _origin_of(manifest: str) -> str:
    return f".{manifest.removesuffix('-manifest.json')}-origin.json"


def _give_up(files: Sequence[OutFile], parts: Sequence[str], error: BaseException) -> None:
    """Close and remove unfinished files; what goes wrong with that is a note of the error that made it necessary."""
    steps = [("closing", file.path, file.close) for file in files] + [("removing", part, partial(os.unlink, part)) for part in parts]
    for what, path, step in steps:
        try:
            step()
        except FileNotFoundError:  # it was not made, or it has its name already
            pass
        except OSError as other:
            add_note(error, f"penstock: and then, {what} {path!r}: {other}")


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
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def strangers(folder: str, shards: Sequence[str]) -> list[str]:
    """Return what stands in a folder under such a name as the shards of a packed dataset have, and is none of them."""
    named = _SHARD.fullmatch(shards[0]) if shards else None
    if named is None:
        return []
    endings = "|".join(sorted({re.escape(os.path.splitext(name)[1]) for name in shards}))
    pattern = re.compile(re.escape(named["name"]) + rf"-\d{{5,6}}(-of-\d{{5}})?(\.[a-z]+)*({endings})")
    return [found for found in sorted(os.listdir(folder)) if pattern.fullmatch(found) and found not in shards]


def difference(found: dict[str, Any], wanted: dict[str, Any], *, lossy: bool) -> str:
    """Say in which key the record of an earlier run is another than it should be, "" for none; of a dict inside it the key that differs.

    Args:
        found: of the earlier run.
        wanted: of this one, or a part of it.
        lossy: whether the earlier run left out elements. If it did not, another `on_error` makes no difference to its files.
    """
    for key, value in json.loads(json.dumps(wanted)).items():
        old = found.get(key)
        if key == "options" and isinstance(old, dict) and not lossy:
            old = {**old, "on_error": value["on_error"]}
        if old == value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            inner = next(name for name in (*value, *old) if old.get(name) != value.get(name))
            flag = as_before(old.get("plan", ()), value.get("plan", ()))
            was, now = json.dumps(old.get(inner)), json.dumps(value.get(inner))
            return f"its {key} is another: {inner} was {was:.120}, now {now:.120}{flag and f'; {flag}'}"
        return f"its {key} is another: {json.dumps(old):.120}, now {json.dumps(value):.120}"
    return ""
