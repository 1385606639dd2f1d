"""TensorBoard event files: scalars by step, in TFRecord frames, as in TensorFlow's event.proto and summary.proto."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from penstock._storage.urls import redacted
from penstock.formats.features import varint
from penstock.formats.tfrecord import frame

__all__ = ["EventFile"]

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class EventFile:
    """Append points of curves to a new event file, which `tensorboard --logdir` reads while it grows. Not thread-safe.

    Each `write` is one system call of whole records, so a reader finds every point that was written, also after a kill. In a process that
    was forked from the one that opened it, nothing is written.

    Args:
        folder: the log directory; made when it does not exist.

    Raises:
        OSError: the folder or the file cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        head = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._pid = os.getpid()
        for number in itertools.count():  # two writers of one folder, in one second, have files of their own
            self.path = Path(folder) / f"{head}.{number}.penstock"
            try:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                break
            except FileExistsError:
                continue
        self.num_bytes = 0
        self._put(_event(time.time(), 0, _text(3, b"brain.Event:2")))

    def begin(self, step: int) -> None:
        """Say that a run begins at this step: readers drop what an earlier run wrote at this step and behind it.

        Raises:
            OSError: the file cannot be written.
        """
        self._put(_event(time.time(), step, _text(7, b"\x08\x01")))  # SessionLog.START

    def write(self, step: int, scalars: Sequence[tuple[str, float]]) -> None:
        """Append one point to each curve: (tag, value), at this step and the present time.

        Raises:
            OSError: the file cannot be written.
        """
        values = b"".join(_text(1, _text(1, redacted(tag).encode()) + b"\x15" + _FLOAT.pack(value)) for tag, value in scalars)
        self._put(_event(time.time(), step, _text(5, values)))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, event: bytes) -> None:
        if self._descriptor < 0 or os.getpid() != self._pid:
            return
        data = memoryview(frame(event))
        self.num_bytes += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]


def _event(wall_time: float, step: int, content: bytes) -> bytes:
    return b"\x09" + _DOUBLE.pack(wall_time) + b"\x10" + varint(step) + content


def _text(field: int, data: bytes) -> bytes:
    """Return a field that holds bytes, text or a message."""
    return bytes([field << 3 | 2]) + varint(len(data)) + data
