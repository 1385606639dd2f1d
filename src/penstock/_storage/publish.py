"""How a finished file gets its name: all of it, or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import zlib
from collections.abc import Callable, Iterable
from typing import BinaryIO

__all__ = ["publish"]

Parts = bytes | bytearray | memoryview | Iterable[bytes | bytearray | memoryview]


def publish(path: str, contents: Parts | Callable[[BinaryIO], None], *, sync: bool = True) -> None:
    """Write a file under a temporary name beside `path`, sync it, and rename it; sync the folder.

    An open of `path` at any time, also after a crash or a loss of power, finds the old file or the new one, complete. Several processes
    may publish the same path at once: one of the complete files stays. When it fails, the temporary file is removed and `path` is as it
    was; the temporary file of a killed process is used again by the next that publishes `path`. Blocks for the disk. From any thread.

    Args:
        path: the final name; its folder exists.
        contents: bytes, pieces of bytes, or a function that writes to the open, buffered file.
        sync: wait until file and name would outlast a loss of power. Without it, such a loss may leave a file with wrong bytes: only
            for files that are checked when read, and can be made again.

    Raises:
        OSError: as the system says it, also for an error that only sync or close tells.
    """
    folder, name = os.path.split(os.path.abspath(path))
    part, descriptor = _part(os.path.join(folder, f".{name[:40]}.{zlib.crc32(os.fsencode(name)):08x}"))
    try:
        try:
            with open(os.dup(descriptor), "wb") as file:
                if callable(contents):
                    contents(file)
                else:
                    for piece in [contents] if isinstance(contents, (bytes, bytearray, memoryview)) else contents:
                        file.write(piece)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            try:
                os.unlink(part)
            except OSError:
                pass  # it was renamed, or the folder was emptied
            raise
    finally:
        os.close(descriptor)  # and with it the lock: until the part has its name or is removed, no process may take it for a left one
    if sync:
        _sync_folder(folder)


def _part(stem: str) -> tuple[str, int]:
    """Make the temporary file, or take the one that a killed process left: its lock is free. Another name while a process writes there."""
    part = f"{stem}.part"
    descriptor = _locked(part)
    if descriptor is None:
        part = f"{stem}.{os.getpid()}-{os.urandom(6).hex()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    return part, descriptor


def _locked(part: str) -> int | None:
    """Open a part that no process writes, emptied and locked; None where that fails, for whatever reason: the caller takes another name."""
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        # Its writer may have renamed it between our two calls: then it is a published file.
        if os.path.samestat(status, os.lstat(part)) and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.ftruncate(descriptor, 0)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.unlink(part)  # a file system without locks: no process writes under this name there
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _sync_folder(folder: str) -> None:
    """Make a rename last through a loss of power; where folders cannot be opened, the system has no such call."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
