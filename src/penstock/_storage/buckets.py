"""Objects of S3 and Google Cloud Storage, through obstore: its credentials, signatures and listings; the retries are ours.

obstore follows redirects of the endpoint and shows neither Retry-After nor check sums. That an answer is the range asked for, of the object
that was listed, is checked all the same.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock._contracts.storage_options import StorageOptions
from penstock._storage.parts import RETRIED, AskAgain, CredentialsRefused, Part, RemoteObject, changed, not_there
from penstock._storage.urls import Address, is_loopback, key_matcher, literal_prefix, redacted
from penstock.errors import MissingExtra, PlanError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BucketTransport"]

_STATUS = re.compile(r"status(?: code)?:? (\d{3})")
_BAD_KEY = "Could not parse path"
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired|InvalidToken")
_CHUNK_BYTES = 1 << 20
_LIST_SIZE = 1000
_PROBE_S = 5.0
_INDEX = ".psidx"
_SHOWN = 300


class BucketTransport:
    """See `Transport`; for one bucket.

    Args:
        origin: an address in it.
        options: as the user gave them.

    Raises:
        MissingExtra: obstore is not installed.
        PlanError: options that obstore does not know.
    """

    def __init__(self, origin: Address, options: StorageOptions) -> None:
        try:
            import obstore
        except ImportError:
            raise MissingExtra(f"{origin.scheme}:// needs obstore", where=origin.shown, fix="pip install 'penstock[cloud]'") from None
        self._obstore = obstore
        self._origin = origin
        self._options = options
        self._store: Any = self._new_store()
        self._is_probed = False

    async def find(self, key: str) -> RemoteObject:
        """Ask for size and version.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        await self._probe()
        return self._found(await self._asked(lambda: self._obstore.head_async(self._store, key), self._shown(key), None))

    async def find_all(self, pattern: str) -> list[RemoteObject]:
        """List the objects whose keys a pattern matches: one listing of the folder in front of the first wildcard.

        A key that the pattern itself is comes first, and indices are not found, as with files.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        await self._probe()
        folder, matcher = (literal_prefix(pattern) or "").rpartition("/")[0], key_matcher(pattern)
        shown = self._shown(pattern)
        if "/" in pattern[len(folder) + bool(folder) :] or "**" in pattern:
            listed = [item async for item in self._walk(folder, shown)]
        else:  # folders below are not asked for
            found = await self._asked(lambda: self._obstore.list_with_delimiter_async(self._store, folder or None), shown, None)
            listed = list(found["objects"])
        named = [item for item in listed if item["path"] == pattern]
        matching = (item for item in listed if matcher.fullmatch(item["path"]) and not item["path"].endswith(_INDEX))
        return [self._found(item) for item in named or matching]

    async def fetch(self, part: Part) -> None:
        """See `Transport`."""
        await self._probe()
        found, begin = part.found, part.begin
        asked: Any = {"range": (begin, part.end), "if_match": found.strong_etag or None}
        result = await self._asked(lambda: self._obstore.get_async(self._store, found.key, options=asked), found.shown, found)
        now = self._found(result.meta)
        if found.etag and now.etag and now.etag != found.etag:
            raise changed(found, now.etag)
        if tuple(result.range) != (begin, part.end) or now.size != found.size:
            raise AskAgain(f"the store sent {tuple(result.range)} of {now.size} bytes for {(begin, part.end)} of {found.size}")
        num_before = part.num_got
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

    def refresh(self) -> None:
        """Let obstore look for credentials again."""
        self._store = self._new_store()

    async def close(self) -> None:
        """Let go of the connections, which obstore then closes."""
        self._store = None

    def _add(self, part: Part, data: Any, num_before: int) -> None:
        if part.begin + len(data) > part.end:
            begin, part.num_got = part.begin, num_before
            raise AskAgain(f"the store sent {len(data)} bytes at {begin}, which is more than it had announced")
        part.add(data)

    async def _walk(self, folder: str, shown: str) -> AsyncIterator[Any]:
        stream: Any = self._obstore.list(self._store, folder or None, chunk_size=_LIST_SIZE)
        while chunk := await self._asked(lambda: anext(stream, None), shown, None):
            for item in chunk:
                yield item

    async def _probe(self) -> None:
        """Find out whether obstore's threads run: they do not in a process that was forked behind their start, and nothing would say so."""
        import asyncio

        if self._is_probed:
            return
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._obstore.put_async(self._obstore.store.MemoryStore(), "probe", b"")
        except TimeoutError:
            raise forked(self._origin.shown) from None
        self._is_probed = True

    async def _asked(self, ask: Callable[[], Any], shown: str, found: RemoteObject | None, num_bytes: int = 0) -> Any:
        import asyncio

        slowest = self._options.min_bytes_per_s
        limit_s = max(self._options.timeout_s, num_bytes / slowest if slowest else 0.0)
        try:
            async with asyncio.timeout(limit_s):
                return await ask()
        except TimeoutError:
            raise AskAgain(f"nothing came for {limit_s:g} s") from None
        except (OSError, ValueError, self._obstore.exceptions.BaseError) as error:
            self._refuse(error, shown, found)
            raise

    def _refuse(self, error: Exception, shown: str, found: RemoteObject | None) -> None:
        """Raise our error for one of obstore. Its text repeats the request, so little of it is shown."""
        known = self._obstore.exceptions
        text = redacted(str(error).partition("\n\nDebug source")[0])[:_SHOWN]
        if isinstance(error, (known.PermissionDeniedError, known.UnauthenticatedError)) or _EXPIRED.search(text):
            raise CredentialsRefused(text) from None
        if isinstance(error, FileNotFoundError):
            raise not_there(shown, text) from None
        if isinstance(error, known.PreconditionError) and found is not None:
            raise changed(found, "another") from None
        status = _STATUS.search(text)
        if status is not None and int(status[1]) == 416 and found is not None:
            raise changed(found, "shorter") from None
        if isinstance(error, known.InvalidPathError) or _BAD_KEY in text:
            raise StorageError(
                f"{shown!r} names or lists a key that obstore cannot read: {text}",
                where=shown,
                fix="give that object a key without empty parts, '.' and '..'; until then name the others without *, ? and [",
            ) from None
        lasting = (ValueError, known.NotSupportedError, known.UnknownConfigurationKeyError)
        if (status is None and not isinstance(error, lasting)) or (status is not None and int(status[1]) in RETRIED):
            raise AskAgain(text) from None
        raise StorageError(f"{shown!r} cannot be read: {text}", where=shown, fix="check bucket, key and options") from None

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
        from obstore import store

        options = self._options
        given = dict(options.store)
        endpoint = str(given.get("endpoint") or given.get("aws_endpoint") or given.get("base_url") or "")
        client: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=options.timeout_s),
            "read_timeout": timedelta(seconds=options.timeout_s),
            "timeout": timedelta(seconds=options.deadline_s),
            "allow_http": options.allow_http or is_loopback(_host_of(endpoint)),
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


def forked(shown: str) -> StorageError:
    """Return the error of a process that was forked from one that used obstore."""
    return StorageError(
        f"{shown!r} cannot be read in this process: it was forked from one that used obstore, whose threads a fork does not take along",
        where=shown,
        fix="start processes by 'spawn' or 'forkserver' (multiprocessing.set_start_method), or read nothing remote before the fork",
    )


def _host_of(endpoint: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(endpoint).hostname or ""
