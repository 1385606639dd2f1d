"""Messages over one private socket pair: whole pickled objects, with descriptors beside them."""

from __future__ import annotations

import errno
import os
import pickle
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock._system.failing import attempt
from penstock._workers.parts import culprit, path_of, words_of
from penstock.errors import SpecError, WorkerFailed

MESSAGE, READY, FAILURE = 0, 1, 2
"""Kinds of messages: the user's, "the child has begun", and the error that ended the child's function."""

_HEADER = struct.Struct("<QB")
_CHUNK_BYTES = 1 << 16
_MAX_FDS = 4
NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""For `send`: a program that gave SIGPIPE back to the system is not killed by the death of a child."""
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_HUNG_UP = sum(getattr(select, name, 0) for name in ("POLLHUP", "POLLERR", "POLLNVAL", "POLLRDHUP"))


_ENDED = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF)
"""The other end is closed, or this one; EPIPE also behind `shut`."""


class PipeEnded(Exception):
    """Nothing more comes: the other end is closed. In a child this is how it is asked to stop."""


class Pipe:
    """One end of a socket pair. `send` may be called from several threads; `receive`, `take` and `fill` from one at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self._sending = threading.Lock()

    def send(self, message: object, *, fds: Sequence[int] = (), where: str = "a message to another process") -> None:
        """Send one object, and open descriptors beside it. Blocks while the socket's buffer is full.

        Args:
            message: anything that pickle takes; keep it small (arrays go through shared memory).
            fds: descriptors that the other end gets copies of, at most four (`take_fd`).
            where: words for the error.

        Raises:
            SpecError: the message cannot be pickled.
            PipeEnded: the other end is closed.
        """
        self.send_bytes(MESSAGE, pickled(message, where), fds)

    def send_bytes(self, kind: int, payload: bytes, fds: Sequence[int] = ()) -> None:
        """Send a message of a kind whose pickle is `payload`."""
        data = _HEADER.pack(len(payload), kind) + payload
        with self._sending:
            try:
                if fds:
                    data = data[socket.send_fds(self._socket, [data], list(fds), NO_SIGNAL) :]
                if data:  # to send nothing fails where the other end has read all, answered and closed
                    self._socket.sendall(data, NO_SIGNAL)
            except OSError as error:
                if error.errno not in _ENDED:
                    raise
                raise PipeEnded from error

    def receive(self) -> Any:
        """Wait for the next message and return its object.

        Raises:
            PipeEnded: the other end is closed.
        """
        while (found := self.take()) is None:
            self.fill()
        return pickle.loads(found[1])

    def take(self) -> tuple[int, bytes] | None:
        """Return kind and pickle of the next message that has arrived whole, or None; never blocks."""
        if len(self._buffer) < _HEADER.size:
            return None
        length, kind = _HEADER.unpack_from(self._buffer)
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(memoryview(self._buffer)[_HEADER.size : end])
        del self._buffer[:end]
        return kind, payload

    def fill(self) -> None:
        """Take in what has arrived; block when nothing has.

        Raises:
            PipeEnded: the other end is closed.
        """
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _CHUNK_BYTES, _MAX_FDS, _CLOSE_ON_EXEC)
        except ConnectionResetError as error:  # it was closed with messages of ours unread
            raise PipeEnded from error
        self._fds.extend(fds)
        if not data:
            raise PipeEnded
        self._buffer += data

    def take_fd(self) -> int:
        """Return the oldest descriptor that came with the messages so far; the caller closes it.

        Raises:
            WorkerFailed: it was lost, because this process has no room for another one.
        """
        try:
            return self._fds.popleft()
        except IndexError:
            raise WorkerFailed(
                "a descriptor that another process sent did not arrive: this process has too many open files",
                where="receiving shared memory",
                fix="close files, or raise the limit with `ulimit -n`",
            ) from None

    def readable(self) -> bool:
        """Tell whether `fill` would return at once; never blocks."""
        return self._look(select.POLLIN, 0)

    def ended(self) -> bool:
        """Tell whether the other end is closed, what it sent before being still to be read or not; never blocks."""
        return self._look(0, _HUNG_UP)

    def _look(self, events: int, hung_up: int) -> bool:
        poll = select.poll()
        poll.register(self._socket, events | (hung_up & getattr(select, "POLLRDHUP", 0)))
        return bool(poll.poll(0))

    def fileno(self) -> int:
        """Return the descriptor of the socket, for poll."""
        return self._socket.fileno()

    def shut(self) -> None:
        """End the conversation for both sides, also where a forked process holds a copy of the descriptor."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end has gone before
            pass

    def close(self) -> None:
        """Close the socket and descriptors that nobody took."""
        self._socket.close()
        while self._fds:
            os.close(self._fds.popleft())


def pickled(message: object, where: str, dumps: Callable[[object], bytes] | None = None) -> bytes:
    """Return the pickle of a message, by `dumps` or else by name.

    Raises:
        SpecError: it, or a part of it, cannot be pickled: named with its place and type.
    """
    try:
        return (dumps or _dumps_by_name)(message)
    except Exception as error:
        raise not_sendable(message, error, where, dumps) from error


def _dumps_by_name(message: object) -> bytes:
    return pickle.dumps(message, protocol=5)


def not_sendable(message: object, error: Exception, where: str, dumps: Callable[[object], bytes] | None = None) -> SpecError:
    """Return the error that names what in a message cannot be pickled by `dumps`, or else by name."""
    # What a user's __reduce__ raises may be anything, and it is told as the error of the whole message.
    steps = culprit(message, lambda part: attempt(dumps or _dumps_by_name, part) is not None, into_code=dumps is not None)
    part, place = steps[-1].part if steps else message, words_of(steps) or path_of(steps)
    kind = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
    return SpecError(
        f"a value of type {kind} cannot be sent to another process{f' (at {place})' if place else ''}: {type(error).__name__}: {error}",
        where=where,
        fix="give arrays, numbers, strings and containers of them",
    )
