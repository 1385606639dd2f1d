"""What reads files: its protocols, the options of remote ones, and the store of `cache`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.errors import PlanError

if TYPE_CHECKING:  # the reference takes the parameters of the library's own
    from dataclasses import dataclass

if sys.platform != "win32":
    import fcntl


RAW: Final[int] = getattr(os, "O_BINARY", 0)
"""A flag of `os.open` for every file, so that Windows does not change its line ends. Python itself adds O_CLOEXEC."""
_TURNS: Final = tuple(threading.Lock() for _ in range(64))


def read_at(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Read at most `num_bytes` at a place of an open file, from any thread. Where the system has no pread, one reads at a time."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, num_bytes, offset)
    with _TURNS[descriptor % len(_TURNS)]:  # all who read the file share its position
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, num_bytes)


def lock_file(descriptor: int, *, shared: bool = False, waits: bool = False) -> None:
    """Lock an open file between processes, until it is closed, however that comes; not on Windows.

    Raises:
        BlockingIOError: another process has the lock, and this one does not wait.
        OSError: as the system says it, such as that the file system has no locks.
    """
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of some bytes to an open file."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@runtime_checkable
class Storage(Protocol):
    """A fixed list of files, local or remote, read by byte ranges. From any thread, several at a time.

    Nothing has to be closed: what is open (descriptors, connections) is bounded and goes with the object.
    """

    def __len__(self) -> int:
        """Count the files."""

    def name(self, file: int) -> str:
        """Return path or URL of a file, as the user gave it or as its pattern found it, without secrets."""

    def size(self, file: int) -> int:
        """Return the bytes of a file, as they were when the storage was opened."""

    def identity(self, file: int) -> dict[str, Any]:
        """Return what tells this version of a file from another without reading it all: JSON-able.

        Local: {"size", "mtime_ns"}; remote: {"size", "etag"} and what else the store says.
        """

    def read(self, file: int, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes.

        Raises:
            SourceError: the file has fewer bytes now (never a short result), or is another one than when the storage was opened.
            OSError: as the system says it, with the path.
        """

    def read_spans(
        self, files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], scratch: Scratch | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read many spans with as few calls as possible: neighbours together.

        Args:
            files: int64 [n].
            offsets: int64 [n], in bytes.
            lengths: int64 [n], in bytes; each span lies inside its file (the caller has checked that).
            scratch: working memory for the result, which is then valid until the next call with it; None for a new array.

        Returns:
            (uint8 [m], int64 [n]): bytes, and where each span begins in them. Spans may share bytes and stand in any order.

        Raises:
            SourceError, OSError: as `read`.
        """


_POSITIVE = ("deadline_s", "timeout_s", "backoff_s", "max_backoff_s", "max_requests", "max_range_bytes", "cache_bytes", "cache_block_bytes")
_WHOLE = ("retries", "max_requests", "max_gap_bytes", "max_range_bytes", "read_ahead_bytes", "cache_bytes", "cache_block_bytes")
_MIN_BLOCKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Options of remote reading. None of them changes what is read. Secrets in it are never printed.

    Attributes:
        store: handed to obstore's S3Store or GCSStore as keywords: `region`, `endpoint`, `access_key_id`, `skip_signature`,
            `credential_provider`, `client_options` and so on. Without them obstore looks where the stores' own tools look.
        headers: headers of requests to `https://`, such as {"Authorization": "Bearer ..."}; or a function without arguments that
            returns them, which is asked again once when the server says 401 or 403. They go to the host of the URL alone.
        redirect_hosts: other hosts that an `https://` server may send us to. To all others it may not.
        allow_http: allow `http://`, and endpoints without TLS. Addresses of this machine are always allowed.
        deadline_s: how long one read may take with all its retries. Keep it below `stall_timeout_s` of the feed.
        timeout_s: how long one try may wait to connect, for the answer, and for `min_bytes_per_s * timeout_s` more bytes.
        min_bytes_per_s: an answer slower than this is given up and asked for again, from where it got to.
        retries: how often one range is asked for again before StorageError.
        backoff_s: mean wait before the first retry; doubled with each one, a quarter more or less at random.
        max_backoff_s: bound of that wait. A server's Retry-After is waited for whatever it says, if the deadline allows it.
        max_requests: requests in flight, for all threads of one dataset together.
        max_gap_bytes: spans that are not further apart are read with one request: so many bytes too much cost less than a request.
        max_range_bytes: larger ranges are cut into several requests that run at the same time; to 4 MB, if fewer are asked for than may
            be in flight.
        read_ahead_bytes: where files are read in order, up to so many bytes of what comes next are fetched before they are asked for, and
            held in memory, for all threads of one source in a process; 0 for none. Not with `cache_dir`.
        cache_dir: a folder on this machine for what has been read, shared by processes; None keeps nothing.
        cache_bytes: bound on the files in it. What was used longest ago goes first.
        cache_block_bytes: files are fetched and kept in aligned blocks of this size.
    """

    store: Mapping[str, Any] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    redirect_hosts: tuple[str, ...] = ()
    allow_http: bool = False
    deadline_s: float = 45.0
    timeout_s: float = 10.0
    min_bytes_per_s: float = 10_000.0
    retries: int = 8
    backoff_s: float = 0.1
    max_backoff_s: float = 10.0
    max_requests: int = 32
    max_gap_bytes: int = 128 * 1024
    max_range_bytes: int = 8 * 1024 * 1024
    read_ahead_bytes: int = 64 * 1024 * 1024
    cache_dir: str | os.PathLike[str] | None = None
    cache_bytes: int = 10 * 1024**3
    cache_block_bytes: int = 2 * 1024**2

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _check(name, getattr(self, name), above=0)
        for name in ("min_bytes_per_s", "retries", "max_gap_bytes", "read_ahead_bytes"):
            _check(name, getattr(self, name), above=-1)
        for name in _WHOLE:
            if getattr(self, name) % 1:
                raise PlanError(f"{name} is {getattr(self, name)}, not a whole number", where="StorageOptions", fix="write an int")
            object.__setattr__(self, name, int(getattr(self, name)))
        if self.cache_bytes < _MIN_BLOCKS * self.cache_block_bytes:
            raise PlanError(
                f"cache_bytes={self.cache_bytes} holds fewer than {_MIN_BLOCKS} blocks of cache_block_bytes={self.cache_block_bytes}",
                where="StorageOptions",
                fix="make the cache larger or the blocks smaller",
            )
        if isinstance(self.redirect_hosts, str) or not all(isinstance(host, str) for host in self.redirect_hosts):
            raise PlanError(
                f"redirect_hosts={self.redirect_hosts!r} is no tuple of names", where="StorageOptions", fix='write ("cdn.example.org",)'
            )
        object.__setattr__(self, "redirect_hosts", tuple(host.lower() for host in self.redirect_hosts))


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """URLs with options: stands wherever a source takes a pattern, such as `ps.read_text(ps.RemoteFiles("s3://bucket/*.txt", {...}))`.

    Attributes:
        urls: a URL, a pattern of them, or several.
        options: a StorageOptions; or a dict, whose names that are not fields of it go to obstore. A StorageOptions afterwards.

    Raises:
        PlanError: options that make no sense.
    """

    urls: str | Sequence[str]
    options: StorageOptions | Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", storage_options(self.options, "RemoteFiles"))


def storage_options(given: StorageOptions | Mapping[str, Any] | None, caller: str) -> StorageOptions:
    """Return the record for what a user gave: names that are not ours go to obstore.

    Raises:
        PlanError: neither a StorageOptions nor a mapping; a value that makes no sense.
    """
    if given is None:
        return StorageOptions()
    if isinstance(given, StorageOptions):
        return given
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise PlanError(
            f"options is {type(given).__name__}, not StorageOptions or a dict",
            where=caller,
            fix='write ps.RemoteFiles(urls, {"region": "eu-west-1"})',
        )
    own = {item.name for item in fields(StorageOptions)}
    ours = {name: value for name, value in given.items() if name in own}
    rest = {name: value for name, value in given.items() if name not in own}
    return StorageOptions(**{**ours, "store": {**ours.get("store", {}), **rest}})


def _check(name: str, value: Any, above: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > above:
        shown = value if isinstance(value, (int, float)) else f"a {type(value).__name__}"
        least = "above 0" if above == 0 else "of 0 or more"
        raise PlanError(f"{name} is {shown}, not a number {least}", where="StorageOptions", fix="leave it out for the default")


class RecordStore(Protocol):
    """Bytes by number. Safe from several threads at once; holds no thread, lock or descriptor between calls."""

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return one record per index, None for what is not there; never a record that is not as it was written."""

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        """Keep records, as far as they fit. When it is not possible, the records are simply not there later: never an error."""

    def label(self) -> str:
        """Say in one line where the records are, how many and how large they are, and how many were found and not found."""
