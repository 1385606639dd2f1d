"""Regular files of this machine. A file that somebody cuts is an error and not the end: see spans.c for how maps are used."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch
from penstock._storage.descriptors import Descriptors, most_open
from penstock._storage.naming import kind_of_file
from penstock._storage.sampling import sample
from penstock._storage.sink import Sink, can_sink
from penstock.errors import IndexStale, SourceError
from penstock.kernels import spans
from penstock.kernels.spans import Taker
from penstock.kernels.spans_twin import known_of

__all__ = ["LocalStorage"]

_GAP_BYTES = 4096
"""Reading so much too much costs less than one more call of the system."""

_OFTEN, _SELDOM = 32, 512
"""One of so many spans is looked at before a block is read, to see whether it is in memory: often while some were missing of late."""


class LocalStorage:
    """See `Storage`. Holds at most 128 files open, and 50 bytes and the path of each file, no Python object.

    A file is the one that it was when the storage was made, or reading it is an error: size, modification time and inode are compared
    at each read of a block. Another time alone is none where `trust` has said what the contents are.

    Args:
        paths: of regular files; relative ones are resolved against the working directory of now.
        caller: the function that the user called, for errors.

    Raises:
        SourceError: a path leads to something else than a regular file.
        OSError: as the system says it.
    """

    def __init__(self, paths: Sequence[str], caller: str) -> None:
        base = os.path.join(os.getcwd(), "")
        self._caller = caller
        self._base_bytes = len(os.fsencode(base))
        versions, sizes, relative = list[tuple[int, int, int]](), list[int](), np.zeros(len(paths), bool)
        blob = bytearray()
        for file, path in enumerate(paths):
            try:
                status = os.stat(path)
            except OSError as error:
                error.add_note(f"looking at a file of {caller}")
                raise
            if not stat.S_ISREG(status.st_mode):
                raise self._not_regular(path, status.st_mode)
            versions.append(known_of(status))
            if not os.path.isabs(path):
                relative[file], path = True, base + path
            blob += os.fsencode(path)
            blob.append(0)
            sizes.append(len(blob))
        known, ends = np.array(versions, np.int64).reshape(-1, 3), np.array(sizes, np.int64)
        starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
        self._files, self._known, self._relative = spans.Files(bytes(blob), starts, known), known, relative
        self._samples: NDArray[np.int64] | None = None
        self._maps, self._every = can_sink(), _OFTEN
        self._descriptors = Descriptors(len(paths), most_open(), known[:, 0] if self._maps else None)

    def __len__(self) -> int:
        return len(self._known)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_descriptors"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        sizes = state["_known"][:, 0] if state["_maps"] else None
        self.__dict__.update(state, _descriptors=Descriptors(len(state["_known"]), most_open(), sizes))

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
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each file, int64 [files]."""
        return self._known[:, 0]

    @property
    def mtimes(self) -> NDArray[np.int64]:
        """Modification time of each file in nanoseconds, int64 [files]."""
        return self._known[:, 1]

    def versions(self) -> NDArray[np.int64]:
        """Return what tells one version of a file from another beside its size, int64 [files] from 0 on: time and inode, mixed."""
        mixed = self._known[:, 1].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ self._known[:, 2].view(np.uint64)
        return (mixed * np.uint64(0xD6E8FEB86659FD93) >> np.uint64(1)).view(np.int64)

    def size(self, file: int) -> int:
        """Return the bytes."""
        return int(self._known[file, 0])

    def identity(self, file: int) -> dict[str, Any]:
        """Return size and modification time."""
        size, mtime_ns, _ = self._known[file].tolist()
        return {"size": size, "mtime_ns": mtime_ns}

    @property
    def descriptors(self) -> Descriptors:
        """Return the pool of open files, for kernels that read them in a way of their own."""
        return self._descriptors

    def trust(self, samples: NDArray[np.int64]) -> None:
        """Say what the files' sampled check sums are: then a file that only looks new (touched, copied back) is still read.

        Args:
            samples: int64 [files], what `sample` gave for each; -1 for one whose bytes have to be known for sure, more than
                samples of a large file tell: then another time alone is an error too.
        """
        self._samples = samples

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
        self, files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], scratch: Scratch | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read many spans with one call that holds no GIL: in the order of files and offsets, near ones together.

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
        most_kept = min(self._descriptors.capacity, len(files))
        while len(files):
            ticket, descriptors, maps = self._descriptors.enter(files)
            kept: list[list[int]] = []
            try:
                block = spans.Spans(files, offsets, lengths, descriptors, maps if sink >= 0 else None, sink, self._every)
                outcome = spans.read_spans(self._files, block, _GAP_BYTES, out, begins, most_kept)
                kept = outcome.kept
                self._looked(outcome.missing)
            finally:
                self._descriptors.leave(ticket, kept)
            if outcome.problem == spans.DONE:
                return out[: outcome.num_bytes], begins
            if outcome.problem == spans.BAD_ROW:
                raise self._outside(int(files[outcome.file]), int(offsets[outcome.file]), int(lengths[outcome.file]))
            self._mend(outcome, mended)
            if outcome.error in (errno.EMFILE, errno.ENFILE):
                most_kept = 0
        return out[:0], begins

    def stream_spans(
        self,
        files: NDArray[np.int64],
        offsets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        scratch: Scratch,
        pieces: tuple[int, int],
        taker: Taker,
    ) -> int:
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
        ticket, descriptors, maps = self._descriptors.enter(files)
        kept: list[list[int]] = []
        try:
            block = spans.Spans(files, offsets, lengths, descriptors, maps if sink >= 0 else None, sink, self._every)
            most_kept = min(self._descriptors.capacity, len(files))
            done, kept, missing = spans.stream_spans(self._files, block, _GAP_BYTES, out, pieces, most_kept, taker)
            self._looked(missing)
        finally:
            self._descriptors.leave(ticket, kept)
        return done

    def _looked(self, missing: bool) -> None:
        self._every = _OFTEN if missing else min(2 * self._every, _SELDOM)

    def _room(self, total: int, scratch: Scratch | None) -> tuple[NDArray[np.uint8], int]:
        """Return uint8 [total] to read into, and its descriptor, or -1 where it has none."""
        if scratch is None:
            return np.empty(total, np.uint8), -1
        if self._maps:
            with contextlib.suppress(OSError):  # no descriptor is left, or files may not be so long: common memory is only slower
                return scratch.hold("spans", Sink).room(total)
        return scratch.take("spans", (total,), np.uint8), -1

    def _mend(self, outcome: spans.Outcome, mended: set[tuple[int, int]]) -> None:
        """Return when another try can help, once per file and cause; else raise what stopped the read."""
        file = outcome.file
        again = (file if outcome.error == errno.ESTALE else -1, outcome.error)
        if outcome.problem == spans.CHANGED:
            self._accept(file)
        elif outcome.error in (errno.EMFILE, errno.ENFILE, errno.ESTALE) and again not in mended:
            # Too many open files: all but those in use go. A stale handle of a network file system: its path may lead to a good one.
            mended.add(again)
            self._descriptors.forget(file if outcome.error == errno.ESTALE else None)
        else:
            raise self._explained(outcome)

    def _explained(self, outcome: spans.Outcome) -> Exception:
        path, where = self.path(outcome.file), f"{self._caller}, {self.name(outcome.file)!r}"
        if outcome.problem == spans.NOT_REGULAR:
            return self._not_regular(self.name(outcome.file), os.stat(path).st_mode)
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
        samples = -1 if self._samples is None else int(self._samples[file])
        if size == before and samples >= 0 and sample(now, 0) == samples:
            self._descriptors.forget(file)  # the path may lead to another inode than the descriptor
            self._known[file] = now._known[0]
            return
        if size == before and samples < 0:
            what = "was written to, or replaced, since it was opened"
        raise IndexStale(
            f"{self.name(file)!r} {what}",
            where=f"{self._caller}, {self.name(file)!r}",
            fix="do not change files while they are read; open the dataset again",
        )

    def _outside(self, file: int, offset: int, length: int) -> SourceError:
        if not 0 <= file < len(self):
            return SourceError(f"file {file} is none of the {len(self)}", where=self._caller, fix="number files from 0")
        return SourceError(
            f"{length} bytes at {offset} do not lie inside {self.name(file)!r}, which has {self.size(file)}",
            where=f"{self._caller}, {self.name(file)!r}",
            fix="read inside the file",
        )

    def _not_regular(self, path: str, mode: int) -> SourceError:
        return SourceError(
            f"{path!r} is {kind_of_file(mode)}, not a regular file", where=self._caller, fix="take it out of the list or pattern"
        )
