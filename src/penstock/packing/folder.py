"""The destination while it is packed: who may write there, what is finished, and what an earlier run left."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Sequence
from typing import Any

from penstock.errors import PackError
from penstock.packing.disk import Disk, OutFile, publish
from penstock.packing.origin import KEYS, Origin

__all__ = ["WORK", "Folder", "difference", "lock_folder", "sha256_of", "strangers"]

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
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        for kind in (fcntl.LOCK_SH,) if shared else (fcntl.LOCK_EX, fcntl.LOCK_SH):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
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
