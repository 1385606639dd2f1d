"""Every step that packing makes on a disk, in one place: so that each of them can be made to fail, and their order be replayed."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["Disk", "NoDisk", "OutFile", "publish"]

_BUFFER_BYTES = 1 << 20
_AHEAD_BYTES = 4 << 20
_SYNC_FILE_RANGE_WRITE = 2
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


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
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
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
