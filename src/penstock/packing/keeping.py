"""The file of elements that are kept while they are packed: one packer's alone, and gone behind it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from penstock.packing.disk import Disk
from penstock.packing.folder import lock_folder

__all__ = ["file_in"]

_PREFIX, _SUFFIX = ".penstock-", ".kept"


@contextmanager
def file_in(folder: str | None, disk: Disk) -> Iterator[tuple[BinaryIO, Callable[[], object]]]:
    """Make a file, for its owner alone; it is gone at the end, and the folder too if it is new and nothing is in it.

    What killed processes left in the folder is removed. The file is locked until the end, which tells the next one that it is needed.

    Args:
        folder: made if it is not there, and locked as for packing until the second result is called; None for one of the system's.
        disk: makes the folder.

    Raises:
        PackError: somebody packs to the folder.
        OSError: as the system says it.
    """
    with ExitStack() as stack, ExitStack() as writing:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        else:
            if not os.path.isdir(folder):
                disk.make_folder(folder)
                stack.callback(_remove_empty, folder)
            writing.callback(os.close, lock_folder(folder, shared=False))
            _remove_left(folder)
        descriptor, path = tempfile.mkstemp(dir=folder, prefix=_PREFIX, suffix=_SUFFIX)
        stack.callback(_remove, path)  # also when it cannot be closed, because the disk is full
        file = stack.enter_context(open(path, "wb", opener=lambda *_: descriptor))
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file, writing.close


def _remove_left(folder: str) -> None:
    for name in os.listdir(folder):
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
            continue
        path = os.path.join(folder, name)
        with suppress(OSError), open(path, "rb") as file:  # BlockingIOError: it is in use
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove_empty(folder: str) -> None:
    with suppress(OSError):  # what was packed is in it
        os.rmdir(folder)
