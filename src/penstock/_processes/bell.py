"""A way to wake who waits for children."""

from __future__ import annotations

import os

__all__ = ["Bell"]


class Bell:
    """Wakes a `wait_any` from another thread or a signal handler; a ring is kept until somebody waits."""

    __slots__ = ("_owner", "_read", "_write")

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        """Wake who waits, or the next who does. In a forked copy of this process nothing happens: the pipe is the original's."""
        if os.getpid() != self._owner:
            return
        try:
            os.write(self._write, b"r")
        except BlockingIOError:  # full of rings: one is enough
            pass

    def silence(self) -> None:
        """Take back all rings."""
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def fileno(self) -> int:
        """Return the descriptor that is readable while there are rings."""
        return self._read

    def close(self) -> None:
        """Close it; nobody may ring any more."""
        os.close(self._read)
        os.close(self._write)
