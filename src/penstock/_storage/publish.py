"""How a finished file gets its name: all of it, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import BinaryIO

__all__ = ["publish"]

Parts = bytes | bytearray | memoryview | Iterable[bytes | bytearray | memoryview]


def publish(path: str, contents: Parts | Callable[[BinaryIO], None], *, sync: bool = True) -> None:
    """Write a file under a temporary name beside `path`, sync it, and rename it; sync the folder.

    Whoever opens `path` at any time, also after a crash or a loss of power, finds the old file or the new one, complete. Several
    processes may publish the same path at once: one of the complete files stays. When it fails, the temporary file is removed and what
    was under `path` is as it was. Blocks for the disk. From any thread.

    Args:
        path: the final name; its folder exists.
        contents: bytes, pieces of bytes, or a function that writes to the open, buffered file.
        sync: wait until file and name would outlast a loss of power. Without it, such a loss may leave a file with wrong bytes: for what
            can tell and be made again.

    Raises:
        OSError: as the system says it, also for an error that only sync or close tells.
    """
    folder, name = os.path.split(os.path.abspath(path))
    part = os.path.join(folder, f".{name[:40]}.{os.getpid()}-{os.urandom(6).hex()}.part")
    try:
        with open(part, "xb") as file:
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
            pass  # it was never made, or was renamed
        raise
    if sync:
        _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make a rename last through a loss of power; where folders cannot be opened, the system has no such call."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
