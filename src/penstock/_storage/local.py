"""Regular files of this machine, and finished files under their names: all of a file, or nothing.

A file that is cut is an error and not its end: see spans.c for how maps are used.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import RAW, lock_file
from penstock._contracts.transform import Scratch
from penstock._storage.sameness import WHOLE_BYTES, marks, sample
from penstock._system.process import OwnLocks
from penstock.errors import IndexStale, SourceError
from penstock.kernels import spans
from penstock.kernels.library import Ints, Uint8s
from penstock.kernels.spans import Taker, as_int64, known_of, map_file, unmap_file

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
    with contextlib.ExitStack() as lock:  # until the part has its name or is removed, no process may take it for a left one
        lock.callback(os.close, descriptor)
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
            finally:
                if sys.platform == "win32":  # where there is no lock, and an open file is neither renamed nor removed
                    lock.close()
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):  # it was renamed, or the folder was emptied
                os.unlink(part)
            raise
    if sync:
        sync_folder(folder)


def _part(stem: str) -> tuple[str, int]:
    """Make the temporary file, or take the one that a killed process left: its lock is free. Another name while a process writes there."""
    part = f"{stem}.part"
    descriptor = None if sys.platform == "win32" else _locked(part)
    if descriptor is None:
        part = f"{stem}.{os.getpid()}-{os.urandom(6).hex()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | RAW, 0o666)
    return part, descriptor


def _locked(part: str) -> int | None:
    """Open a part that no process writes, emptied and locked; None where that fails, for whatever reason: the caller takes another name."""
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return None
    try:
        lock_file(descriptor)
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


def sync_folder(path: str) -> None:
    """Return when the names in a folder are on the disk; where folders cannot be opened, the system has no such call.

    Raises:
        OSError: as the system says it.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_GAP_BYTES = 4096
"""Reading so much too much costs less than one more call of the system."""

_OFTEN, _SELDOM = 32, 512
"""One of so many spans is looked at before a block is read, to see whether it is in memory: often while some were missing of late."""

_MOST, _LEAST, _SHARE = 128, 4, 8
_LEAST_BYTES = 1 << 20

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


class LocalStorage:
    """See `Storage`. Holds at most 128 files open, and 58 bytes and the path of each file, no Python object.

    A file is the one that it was when the storage was made, or reading it is an error: size, modification time and inode are compared
    at each read of a block. A new modification time alone is no error where `trust` has given check sums.

    Args:
        paths: of regular files; relative ones are resolved against the working directory of now.
        caller: the function that the user called, for errors.

    Attributes:
        marks: of each file, as `penstock._storage.sameness` has it: int64 [files].
        descriptors: the pool of open files, for kernels that read them in a way of their own.

    Raises:
        SourceError: a path leads to something else than a regular file.
        OSError: as the system says it.
    """

    def __init__(self, paths: Sequence[str], caller: str) -> None:
        base = os.path.join(os.getcwd(), "")
        self._caller = caller
        self._base_bytes = len(os.fsencode(base))
        versions, changed_ns, sizes, relative = list[tuple[int, int, int]](), list[int](), list[int](), np.zeros(len(paths), bool)
        blob = bytearray()
        for file, path in enumerate(paths):
            try:
                status = os.stat(path)
            except OSError as error:
                error.add_note(f"looking at a file of {caller}")
                raise
            if not stat.S_ISREG(status.st_mode):
                raise not_regular(path, status.st_mode, caller)
            versions.append(known_of(status))
            changed_ns.append(status.st_ctime_ns)
            if not os.path.isabs(path):
                relative[file], path = True, base + path
            blob += os.fsencode(path)
            blob.append(0)
            sizes.append(len(blob))
        known, ends = np.array(versions, np.int64).reshape(-1, 3), np.array(sizes, np.int64)
        starts = np.append(0, ends)[:-1]
        self._files, self._known, self._relative = spans.Files(bytes(blob), starts, known), known, relative
        self._changed_ns = np.array(list(map(as_int64, changed_ns)), np.int64)
        self._marks: Ints | None = None
        self._samples, self._most_trusted = np.zeros(0, np.uint32), -1
        self._maps, self._every = can_sink(), _OFTEN
        self.descriptors = Descriptors(self.sizes, most_open())

    def __len__(self) -> int:
        return len(self._known)

    @property
    def marks(self) -> Ints:
        """A number for each file and state of it; the first time this waits up to 20 ms where a file was just written."""
        changed_ns = self._changed_ns  # before looking: another thread lets go of it behind the marks
        if self._marks is None:
            self._marks, self._changed_ns = marks(self._known, changed_ns.tolist()), np.zeros(0, np.int64)
        return self._marks

    def path(self, file: int) -> str:
        """Return where a file is, whatever the working directory is now."""
        return os.fsdecode(self._files.path(file))

    def name(self, file: int) -> str:
        """Return the path as it was given."""
        return os.fsdecode(os.fsencode(self.path(file))[self._base_bytes :]) if self._relative[file] else self.path(file)

    def all_paths(self) -> bytes:
        """Return where the files are, one behind the other, a 0 behind each."""
        return self._files.paths

    @property
    def sizes(self) -> Ints:
        """Bytes of each file, int64 [files]."""
        return self._known[:, 0]

    @property
    def mtimes(self) -> Ints:
        """Modification time of each file in nanoseconds, int64 [files]."""
        return self._known[:, 1]

    def size(self, file: int) -> int:
        """Return the bytes."""
        return int(self._known[file, 0])

    def identity(self, file: int) -> dict[str, Any]:
        """Return size and modification time."""
        size, mtime_ns, _ = self._known[file].tolist()
        return {"size": size, "mtime_ns": mtime_ns}

    def trust(self, samples: NDArray[np.uint32], *, only_whole: bool = False) -> None:
        """Say what the files' sampled check sums are: then a file that only looks new (touched, copied back) is still read.

        Args:
            samples: uint32 [files], what `sample` gave for each.
            only_whole: of a large file samples tell too little: then another time alone is an error.
        """
        self._samples, self._most_trusted = samples, WHOLE_BYTES if only_whole else 1 << 62

    def read(self, file: int, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes.

        Raises:
            IndexStale: the file is no longer the one that it was.
            SourceError: it has fewer.
            OSError: as the system says it.
        """
        one, begin, count = (np.array([number], np.int64) for number in (file, offset, length))
        data, begins = self.read_spans(one, begin, count, None)
        return data[begins[0] : begins[0] + length].tobytes()

    def read_spans(
        self, files: Ints, offsets: Ints, lengths: Ints, scratch: Scratch | None, *, keeps_open: bool = True
    ) -> tuple[Uint8s, Ints]:
        """Read many spans with one call that holds no GIL: in the order of files and offsets, near ones together.

        With `keeps_open`, files stay open as far as there is room: they will be read again.

        Raises:
            IndexStale: a file is no longer the one that it was.
            SourceError: a span lies outside it.
            OSError: as the system says it, with the path.
        """
        files, offsets, lengths = (np.ascontiguousarray(values, np.int64) for values in (files, offsets, lengths))
        total = int(lengths.sum()) + _GAP_BYTES * len(files)
        out, sink = self._room(total, scratch)
        begins = np.empty(len(files), np.int64)
        mended: set[tuple[int, int]] = set()
        most_kept = min(self.descriptors.capacity, len(files)) if keeps_open else 0
        while len(files):
            ticket, descriptors, maps = self.descriptors.enter(files)
            kept: list[list[int]] = []
            try:
                block = spans.Spans(files, offsets, lengths, descriptors, maps if sink >= 0 else None, sink, self._every)
                outcome = spans.read_spans(self._files, block, _GAP_BYTES, out, begins, most_kept)
                kept = outcome.kept
                self._looked(outcome.missing)
            finally:
                self.descriptors.leave(ticket, kept)
            if outcome.problem == spans.DONE:
                return out[: outcome.num_bytes], begins
            if outcome.problem == spans.BAD_ROW:
                raise self._outside(int(files[outcome.file]), int(offsets[outcome.file]), int(lengths[outcome.file]))
            self._mend(outcome, mended)
            if outcome.error in (errno.EMFILE, errno.ENFILE):
                most_kept = 0
        return out[:0], begins

    def stream_spans(self, files: Ints, offsets: Ints, lengths: Ints, scratch: Scratch, pieces: tuple[int, int], taker: Taker) -> int:
        """Read many spans with one call that holds no GIL, and have each piece of them taken while it is in the cache.

        Args:
            files: int64 [n], likewise offsets and lengths; read in this order, but for that within a piece.
            offsets: in bytes.
            lengths: in bytes.
            scratch: for a piece.
            pieces: the most rows and, of several rows, the most bytes of a piece.
            taker: takes them.

        Returns:
            How many spans were taken, from the first on. Where that is not all of them, `read_spans` tells what is wrong with the next, or
            reads it: this one raises nothing and tries nothing again.
        """
        most_rows, most_bytes = pieces
        out, sink = self._room(most_bytes + most_rows * _GAP_BYTES, scratch)
        ticket, descriptors, maps = self.descriptors.enter(files)
        kept: list[list[int]] = []
        try:
            block = spans.Spans(files, offsets, lengths, descriptors, maps if sink >= 0 else None, sink, self._every)
            most_kept = min(self.descriptors.capacity, len(files))
            done, kept, missing = spans.stream_spans(self._files, block, _GAP_BYTES, out, pieces, most_kept, taker)
            self._looked(missing)
        finally:
            self.descriptors.leave(ticket, kept)
        return done

    def _looked(self, missing: bool) -> None:
        self._every = _OFTEN if missing else min(2 * self._every, _SELDOM)

    def _room(self, total: int, scratch: Scratch | None) -> tuple[Uint8s, int]:
        """Return uint8 [total] to read into, and its descriptor, or -1 where it has none."""
        if scratch is None:
            return np.empty(total, np.uint8), -1
        if self._maps:
            with contextlib.suppress(OSError):  # no descriptor is left, or files may not be so long: common memory is only slower
                return scratch.hold("spans", Sink).room(total)
        return scratch.take("spans", (total,), np.uint8), -1

    def _mend(self, outcome: spans.BlockOutcome, mended: set[tuple[int, int]]) -> None:
        """Return when another try can help, once per file and cause; else raise the error that stopped the read."""
        file = outcome.file
        again = (file if outcome.error == errno.ESTALE else -1, outcome.error)
        if outcome.problem == spans.CHANGED:
            self._accept(file)
        elif outcome.error in (errno.EMFILE, errno.ENFILE, errno.ESTALE) and again not in mended:
            # Too many open files: all but those in use go. A stale handle of a network file system: its path may lead to a good one.
            mended.add(again)
            self.descriptors.forget(file if outcome.error == errno.ESTALE else None)
        else:
            raise self._explained(outcome)

    def _explained(self, outcome: spans.BlockOutcome) -> Exception:
        path, where = self.path(outcome.file), f"{self._caller}, {self.name(outcome.file)!r}"
        if outcome.problem == spans.NOT_REGULAR:
            return not_regular(self.name(outcome.file), os.stat(path).st_mode, self._caller)
        if outcome.problem == spans.CUT:
            before = self.size(outcome.file)
            return IndexStale(
                f"{self.name(outcome.file)!r} was cut: nothing is at {outcome.found[0]} any more, and it had {before} bytes",
                where=where,
                fix="do not change files while they are read; open the dataset again",
            )
        error = OSError(outcome.error, os.strerror(outcome.error), path)
        error.add_note(f"reading a file of {self._caller}")
        if outcome.error in (errno.EMFILE, errno.ENFILE):
            error.add_note(f"this process may open no more files: raise the limit (ulimit -n); {self._caller} itself needs one at a time")
        return error

    def _accept(self, file: int) -> None:
        """Take a file that looks new as the same one when its sampled check sums are those of before; else raise."""
        now = LocalStorage([self.path(file)], self._caller)
        size, before = now.size(0), self.size(file)
        what = f"has {size} bytes and had {before}" if size != before else "has other contents than it had"
        is_trusted = size == before <= self._most_trusted
        if is_trusted and sample(now, 0) == int(self._samples[file]):
            self.descriptors.forget(file)  # the path may lead to another inode than the descriptor
            self._known[file] = now._known[0]
            return
        if size == before and not is_trusted:
            what = "was written to, or replaced, since it was opened"
        raise IndexStale(
            f"{self.name(file)!r} {what}",
            where=f"{self._caller}, {self.name(file)!r}",
            fix="do not change files while they are read; open the dataset again",
        )

    def _outside(self, file: int, offset: int, length: int) -> SourceError:
        return SourceError(
            f"{length} bytes at {offset} do not lie inside {self.name(file)!r}, which has {self.size(file)}",
            where=f"{self._caller}, {self.name(file)!r}",
            fix="read inside the file",
        )


def not_regular(path: str, mode: int, where: str) -> SourceError:
    """Return the error of a path to something else than a regular file, by its mode of `stat`."""
    kind = _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")
    return SourceError(f"{path!r} is {kind}, not a regular file", where=where, fix="take it out of the list or pattern")


# -- open files --------------------------------------------------------------------------------------------------------------------


def most_open() -> int:
    """Return how many files one storage may keep open: an eighth of the process's limit, 128 at most."""
    try:
        import resource
    except ImportError:
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft // _SHARE))


class _Retired(NamedTuple):
    """An open file that no new read gets."""

    since: int
    descriptor: int
    address: int
    size: int

    def close(self) -> None:
        os.close(self.descriptor)
        if self.address:
            unmap_file(self.address, self.size)


class Descriptors:
    """Keeps files open between reads, at most so many, and closes none that a read may be using.

    A descriptor that is closed under a reader may be another file's a moment later. So a read holds a ticket while it uses descriptors;
    a descriptor that is taken out is closed when no older ticket is left. At most as many wait for that as are kept, however slow a read
    is. From any thread; a forked process has the files that were open, and none of the reads.

    Args:
        sizes: int64 [files], for maps of the files that are kept. Files are numbered from 0.
        capacity: how many are kept.
    """

    def __init__(self, sizes: Ints, capacity: int) -> None:
        self.capacity = capacity
        self._of_file, self._map_of_file, self._sizes = np.full_like(sizes, -1), np.zeros_like(sizes), sizes
        self._open: dict[int, int] = {}  # the longest open first
        self._retired: list[_Retired] = []
        self._tickets: set[int] = set()
        self._next = 0
        self._locks = OwnLocks()
        # No `__del__`: at the exit of the interpreter it may run behind the end of its module, whose names are all None by then.
        weakref.finalize(self, _close_all, self._open, self._retired, self._map_of_file, self._sizes).atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep other files open in another process, none at first."""
        return Descriptors, (self._sizes, self.capacity)

    def enter(self, files: Ints) -> tuple[int, Ints, Ints]:
        """Begin to read files; return a ticket, the descriptor of each, -1 where it is not open, and the address of its map or 0."""
        with self._locks.own():
            self._settle()
            ticket = self._next
            self._next += 1
            self._tickets.add(ticket)
            return ticket, self._of_file.take(files, mode="clip"), self._map_of_file.take(files, mode="clip")

    def leave(self, ticket: int, opened: Iterable[list[int]] = ()) -> None:
        """End a read; keep the files that it opened, (file, descriptor) each, where there is room. The longest open ones make room."""
        with self._locks.own():
            self._settle()
            self._tickets.discard(ticket)
            self._close_retired()
            for file, descriptor in opened:
                is_full = len(self._open) >= self.capacity
                if file in self._open or (is_full and len(self._retired) >= self.capacity):
                    os.close(descriptor)  # another thread was faster, or nothing can make room; no other read has this one
                    continue
                if is_full:
                    self._retire(next(iter(self._open)))
                self._open[file] = descriptor
                self._of_file[file] = descriptor
                self._map_of_file[file] = map_file(descriptor, int(self._sizes[file]))
            self._close_retired()

    def forget(self, file: int | None = None) -> None:
        """Close a file, or all, as soon as no read uses it."""
        with self._locks.own():
            self._settle()
            for one in list(self._open) if file is None else [file] if file in self._open else []:
                self._retire(one)
            self._close_retired()

    def _settle(self) -> None:
        """In a forked process, forget the reads of threads that are not there, and rebuild the tables that one may have been changing."""
        if not self._locks.is_new():
            return
        self._tickets.clear()
        kept = np.fromiter(self._open, np.int64, len(self._open))
        maps = self._map_of_file.take(kept)
        self._of_file.fill(-1)
        self._map_of_file.fill(0)
        self._of_file[kept] = np.fromiter(self._open.values(), np.int64, len(kept))
        self._map_of_file[kept] = maps
        self._close_retired()

    def _retire(self, file: int) -> None:
        self._retired.append(_Retired(self._next, self._open.pop(file), int(self._map_of_file[file]), int(self._sizes[file])))
        self._of_file[file], self._map_of_file[file] = -1, 0

    def _close_retired(self) -> None:
        if not self._retired:
            return
        oldest = min(self._tickets, default=self._next)
        unused = [one for one in self._retired if one.since <= oldest]
        # Taken out first: a process that is forked in between must not close a number that may be another file's by then.
        self._retired[:] = [one for one in self._retired if one.since > oldest]
        for one in unused:
            one.close()

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)


def _close_all(opened: dict[int, int], retired: list[_Retired], maps: Ints, sizes: Ints) -> None:
    for file, descriptor in opened.items():
        _Retired(0, descriptor, int(maps[file]), int(sizes[file])).close()
    for one in retired:
        one.close()


# -- memory of spans ---------------------------------------------------------------------------------------------------------------


def can_sink() -> bool:
    """Tell whether this system has anonymous files."""
    return hasattr(os, "memfd_create")


class Sink:
    """An anonymous file and a map of it, which grow. For one thread. Its room is valid until the next call."""

    def __init__(self) -> None:
        """Prepare; the file is made at the first use."""
        self._descriptor = -1
        self._owner = 0
        self._bytes = np.empty(0, np.uint8)
        self._closing: Any = None

    def room(self, num_bytes: int) -> tuple[Uint8s, int]:
        """Return uint8 [num_bytes], not cleared, and the descriptor of the file that it is the beginning of.

        Raises:
            OSError: no memory or no descriptor is left.
        """
        if self._owner != os.getpid():
            # After a fork parent and child would write into one file. The child leaves the parent's descriptor alone.
            self._descriptor, self._owner, self._bytes = os.memfd_create("penstock-spans"), os.getpid(), np.empty(0, np.uint8)
            if self._closing is not None:
                self._closing.detach()
            self._closing = weakref.finalize(self, _close, self._descriptor, self._owner)
            self._closing.atexit = False
        if num_bytes > self._bytes.size:
            size = max(_LEAST_BYTES, 1 << (num_bytes - 1).bit_length())
            os.ftruncate(self._descriptor, size)  # pages come when they are written to
            self._bytes = np.frombuffer(mmap.mmap(self._descriptor, size), np.uint8)
        return self._bytes[:num_bytes], self._descriptor


def _close(descriptor: int, owner: int) -> None:
    if owner == os.getpid():
        os.close(descriptor)
