"""Objects of S3 and Google Cloud Storage through obstore.

Credentials, signatures and listings are obstore's; the retries are ours. obstore follows redirects of the endpoint and does not show
Retry-After. That an answer is the range asked for, of the object that was listed, is checked all the same.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._contracts.storage import StorageOptions
from penstock._storage.requests import (
    CHECK_HOST,
    RETRIED,
    AskAgain,
    CredentialsRefused,
    Ended,
    Part,
    RemoteObject,
    Turn,
    changed,
    not_there,
)
from penstock._storage.urls import Address, is_loopback, is_readable, key_matcher, literal_prefix
from penstock._system.text import redacted
from penstock.errors import MissingExtra, PlanError, StorageError

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

_STATUS = re.compile(r"(?:status(?: code)?:?|HTTP Error) (\d{3})")
_NO_HOST = re.compile(r"dns error.*not known|InvalidCertificate", re.DOTALL)
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired|InvalidToken")
_CHUNK_BYTES = 1 << 20
_NOT_FOUND = (".psidx", "/", "_$folder$")
"""Endings of keys that patterns do not find: indices, and folders as consoles and Hadoop mark them."""
_LIST_SIZE = 1000
_SHOWN = 300
_T = TypeVar("_T")
_users: set[int] = set()
"""The processes, this one and those that it was forked from, that used obstore."""


class BucketTransport:
    """How objects of one bucket are asked for; from several threads. obstore's requests run in an event loop, where they can be broken off.

    Args:
        origin: an address in it.
        options: as the user gave them.

    Raises:
        MissingExtra: obstore is not installed.
        PlanError: options that obstore does not know.
        StorageError: a process that was forked from one that used obstore.
    """

    def __init__(self, origin: Address, options: StorageOptions) -> None:
        import asyncio

        try:
            import obstore
        except ImportError:
            raise MissingExtra(f"{origin.scheme}:// needs obstore", where=origin.shown, fix='pip install "penstock[cloud]"') from None
        if _users and os.getpid() not in _users:
            raise StorageError(
                f"{origin.shown!r} cannot be read in this process: it was forked from one that used obstore, whose threads a fork does not "
                "take along",
                where=origin.shown,
                fix="start processes by 'spawn' or 'forkserver' (multiprocessing.set_start_method), or read nothing remote before the fork",
            )
        _users.add(os.getpid())
        self._obstore = obstore
        self._origin = origin
        self._options = options
        self._store: Any = self._new_store()
        runner, self._end = asyncio.Runner(loop_factory=asyncio.new_event_loop), asyncio.Event()
        self._loop = runner.get_loop()  # here and not in the thread: it may fail for want of descriptors
        self._thread = threading.Thread(target=_serve, args=(runner, self._end), name="penstock-remote", daemon=True)
        self._thread.start()

    def find(self, key: str, turn: Turn) -> RemoteObject:
        """Ask for size and version.

        Raises:
            AskAgain, CredentialsRefused, StorageError, Ended: as `fetch`.
        """
        self._check_readable(key)
        return self._found(self._run(turn, lambda: self._asked(lambda: self._obstore.head_async(self._store, key), self._shown(key))))

    def find_all(self, pattern: str, turn: Turn, names: set[str] | None = None) -> list[RemoteObject]:
        """List the objects whose keys a pattern matches: one listing of the folder in front of the first wildcard.

        A key that the pattern itself is comes first, and indices are not found, as with files. With `names`, those of these keys.

        Raises:
            AskAgain, CredentialsRefused, StorageError, Ended: as `fetch`.
        """
        self._check_readable(pattern)
        folder, matcher = (literal_prefix(pattern) or "").rpartition("/")[0], key_matcher(pattern)
        is_deep = "/" in pattern[len(folder) + bool(folder) :] or "**" in pattern
        by_key = self._run(turn, lambda: self._list(folder, is_deep, self._shown(pattern), turn))
        if names is not None:
            found = [by_key[key] for key in names & by_key.keys()]
        elif pattern in by_key:
            found = [by_key[pattern]]
        else:
            found = [item for key, item in by_key.items() if matcher.fullmatch(key) and not key.endswith(_NOT_FOUND)]
        for item in found:
            self._check_readable(item.key)
        return found

    def fetch(self, part: Part, turn: Turn) -> None:
        """Make one try to get the missing bytes of a part.

        Raises:
            AskAgain: the next try may succeed; bytes that came are in the part.
            CredentialsRefused: 401 or 403.
            StorageError: asking again is no use.
            ObjectChanged: it is another object now.
            Ended: the read has ended.
        """
        self._run(turn, lambda: self._fetch(part))

    def refresh(self) -> None:
        """Let obstore look for credentials again."""
        self._store = self._new_store()

    def close(self) -> None:
        """End the loop, and let go of the connections, which obstore then closes."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._store = None

    def _run(self, turn: Turn, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        import asyncio
        from concurrent.futures import CancelledError

        futures: list[Future[_T]] = []
        with turn.breaking(lambda: [future.cancel() for future in futures]):
            futures.append(asyncio.run_coroutine_threadsafe(ask(), self._loop))
            if turn.is_ended:  # `end` may have come before there was something to cancel
                futures[0].cancel()
            try:
                return futures[0].result()
            except CancelledError:
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result()  # by then it has stopped writing into the part
                raise Ended from None

    async def _fetch(self, part: Part) -> None:
        found, begin, num_before = part.found, part.begin, part.num_got
        asked: Any = {"range": (begin, part.end), "if_match": found.strong_etag or None}
        result = await self._asked(lambda: self._obstore.get_async(self._store, found.key, options=asked), found.shown, found)
        now = self._found(result.meta)
        if found.etag and now.etag and now.etag != found.etag:
            raise changed(found, now.etag)
        if tuple(result.range) != (begin, part.end) or now.size != found.size:
            raise AskAgain(f"the store sent {tuple(result.range)} of {now.size} bytes for {(begin, part.end)} of {found.size}")
        if part.end - begin <= _CHUNK_BYTES:
            self._add(part, await self._asked(result.bytes_async, found.shown, found, part.end - begin), num_before)
        else:
            stream = result.stream(min_chunk_size=_CHUNK_BYTES)
            # obstore's own end of a stream is StopAsyncIteration, which a coroutine may not raise.
            while len(data := await self._asked(lambda: anext(stream, b""), found.shown, found, _CHUNK_BYTES)):
                self._add(part, data, num_before)
        if part.begin < part.end:
            got, part.num_got = part.begin, num_before
            raise AskAgain(f"the answer ended in order at byte {got} of {part.end}, against what it had announced")

    def _add(self, part: Part, data: Any, num_before: int) -> None:
        if part.begin + len(data) > part.end:
            begin, part.num_got = part.begin, num_before
            raise AskAgain(f"the store sent {len(data)} bytes at {begin}, which is more than it had announced")
        part.add(data)

    async def _list(self, folder: str, is_deep: bool, shown: str, turn: Turn) -> dict[str, RemoteObject]:
        """Return the objects in a folder, by key. The deadline is for a page: a million keys are a thousand."""
        listed: list[RemoteObject] = []
        if not is_deep:
            found = await self._asked(lambda: self._obstore.list_with_delimiter_async(self._store, folder or None), shown, is_paged=True)
            listed, folders = [*map(self._found, found["objects"])], set(found["common_prefixes"])
        else:
            stream: Any = self._obstore.list(self._store, folder or None, chunk_size=_LIST_SIZE)
            while chunk := await self._asked(lambda: anext(stream, None), shown):
                listed += map(self._found, chunk)
                turn.deadline = time.monotonic() + self._options.deadline_s
            folders = {item.key[: slash.start()] for item in listed for slash in re.finditer("/", item.key)}
        # obstore lists "a/", the mark of a folder, as "a".
        return {item.key: item for item in sorted(listed, key=lambda item: item.size) if item.size or item.key not in folders}

    def _check_readable(self, key: str) -> None:
        if not is_readable(key):
            raise _unreadable(self._shown(key), "it has a slash at an end, an empty part, '.', '..' or a control character")

    async def _asked(
        self, ask: Callable[[], Any], shown: str, found: RemoteObject | None = None, num_bytes: int = 0, is_paged: bool = False
    ) -> Any:
        import asyncio

        slowest = self._options.min_bytes_per_s
        limit_s = max(self._options.timeout_s, num_bytes / slowest if slowest else 0.0)
        try:
            async with asyncio.timeout(None if is_paged else limit_s):  # of several requests, obstore limits each
                return await ask()
        except TimeoutError:
            raise AskAgain(f"nothing came for {limit_s:g} s") from None
        except (OSError, ValueError, self._obstore.exceptions.BaseError) as error:
            self._refuse(error, shown, found)
            raise

    def _refuse(self, error: Exception, shown: str, found: RemoteObject | None) -> None:
        """Raise our error for one of obstore. Its text repeats the request, so little of it is shown."""
        known = self._obstore.exceptions
        whole = str(error)
        text = redacted(whole.partition("\n\nDebug source")[0])[:_SHOWN]
        if isinstance(error, (known.PermissionDeniedError, known.UnauthenticatedError)) or _EXPIRED.search(whole):
            raise CredentialsRefused(text) from None
        if isinstance(error, FileNotFoundError):
            raise not_there(shown, text) from None
        if isinstance(error, known.PreconditionError) and found is not None:
            raise changed(found, "another") from None
        number = _STATUS.search(whole)
        status = int(number[1]) if number is not None else 0
        if status == 416 and found is not None:
            raise changed(found, "shorter") from None
        if isinstance(error, known.InvalidPathError):
            raise _unreadable(shown, text) from None
        lasting = (ValueError, known.NotSupportedError, known.UnknownConfigurationKeyError)
        if _passes(status, whole) and (status or not isinstance(error, lasting)):
            raise AskAgain(text, fix=CHECK_HOST if _NO_HOST.search(whole) else "") from None
        raise StorageError(f"{shown!r} cannot be read: {text}", where=shown, fix="check credentials, bucket, key and options") from None

    def _found(self, meta: Any) -> RemoteObject:
        return RemoteObject(
            key=meta["path"],
            shown=self._shown(meta["path"]),
            size=meta["size"],
            etag=meta["e_tag"] or "",
            modified=meta["last_modified"].isoformat() if meta["last_modified"] else "",
        )

    def _shown(self, key: str) -> str:
        return f"{self._origin.scheme}://{self._origin.host}/{key}"

    def _new_store(self) -> Any:
        from urllib.parse import urlsplit

        from obstore import store

        options = self._options
        given = dict(options.store)
        endpoint = str(given.get("endpoint") or given.get("aws_endpoint") or given.get("base_url") or "")
        client: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=options.timeout_s),
            "read_timeout": timedelta(seconds=options.timeout_s),
            "timeout": timedelta(seconds=options.deadline_s),
            "allow_http": options.allow_http or is_loopback(urlsplit(endpoint).hostname or ""),
            **given.pop("client_options", {}),
        }
        # All tries of obstore's own are switched off: they know no deadline of ours, and cannot be counted.
        retry: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=options.deadline_s)}
        kind: Any = store.S3Store if self._origin.scheme == "s3" else store.GCSStore
        try:
            return kind(self._origin.host, client_options=client, retry_config=retry, **given)
        except (TypeError, ValueError, self._obstore.exceptions.BaseError) as error:
            raise PlanError(
                f"obstore does not take the storage options: {redacted(str(error))[:_SHOWN]}",
                where=f"{self._origin.scheme}://{self._origin.host}",
                fix="see obstore's S3Store and GCSStore for their names",
            ) from None


def _serve(runner: asyncio.Runner, end: asyncio.Event) -> None:
    with runner:
        runner.run(end.wait())


def _passes(status: int, text: str) -> bool:
    """Tell whether waiting may help: by the status of an answer, or without one."""
    return status in RETRIED or "<Code>RequestTimeout<" in text or not (status or "BareRedirect" in text)


def _unreadable(shown: str, why: str) -> StorageError:
    return StorageError(
        f"{shown!r} names or lists a key that obstore cannot read: {why}",
        where=shown,
        fix="give that object a key without empty parts, '.' and '..', and name a folder as folder/**",
    )
