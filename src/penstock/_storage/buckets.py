"""One thread with an event loop for all requests of a storage, and objects of S3 and Google Cloud Storage through obstore.

Credentials, signatures and listings are obstore's; the retries are ours. obstore follows redirects of the endpoint and shows neither
Retry-After nor check sums. That an answer is the range asked for, of the object that was listed, is checked all the same.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._contracts.process import breakable
from penstock._contracts.storage import StorageOptions
from penstock._storage.parts import (
    CHECK_HOST,
    RETRIED,
    AskAgain,
    CredentialsRefused,
    Part,
    RemoteObject,
    Turn,
    changed,
    exhausted,
    not_there,
    persist,
)
from penstock._storage.urls import Address, is_loopback, is_readable, key_matcher, literal_prefix, redacted
from penstock._storage.web import WebTransport
from penstock.errors import MissingExtra, PlanError, StorageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from xml.etree.ElementTree import Element

_STATUS = re.compile(r"(?:status(?: code)?:?|HTTP Error) (\d{3})")
_NO_HOST = re.compile(r"dns error.*not known|InvalidCertificate", re.DOTALL)
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired|InvalidToken")
_CHUNK_BYTES = 1 << 20
_LIST_SIZE = 1000
_PROBE_S = 5.0
_NOT_FOUND = (".psidx", "/", "_$folder$")
"""Endings of keys that patterns do not find: indices, and folders as consoles and Hadoop mark them."""
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
            raise MissingExtra(f"{origin.scheme}:// needs obstore", where=origin.shown, fix='pip install "penstock[cloud]"') from None
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
        self._check_readable(key)
        return self._found(await self._asked(lambda: self._obstore.head_async(self._store, key), self._shown(key), None))

    async def find_listed(self, key: str) -> RemoteObject | None:
        """Ask for size and version of a key that a listing seems to hold; return None where it is another key.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        try:
            return await self.find(key)
        except StorageError as error:
            if isinstance(error.__context__, FileNotFoundError):
                return None
            raise

    async def find_all(self, pattern: str) -> list[RemoteObject]:
        """List the objects whose keys a pattern matches: one listing of the folder in front of the first wildcard.

        A key that the pattern itself is comes first, and indices are not found, as with files. A slash at an end of a key may be missing in
        what is returned; such a key is of no bytes, or returned twice, or not there when it is read.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        await self._probe()
        self._check_readable(pattern)
        folder, matcher = (literal_prefix(pattern) or "").rpartition("/")[0], key_matcher(pattern)
        is_deep = "/" in pattern[len(folder) + bool(folder) :] or "**" in pattern
        try:
            listed = await self._list(folder, is_deep, self._shown(pattern))
        except StorageError as error:
            if self._origin.scheme != "s3" or not isinstance(error.__context__, self._obstore.exceptions.InvalidPathError):
                raise
            listed = await self._list_signed(f"{folder}/" if folder else "", is_deep, self._shown(pattern))
        named = [item for item in listed if item["path"] == pattern]
        found = named or [item for item in listed if matcher.fullmatch(item["path"]) and not item["path"].endswith(_NOT_FOUND)]
        for item in found:
            self._check_readable(item["path"])
        return [self._found(item) for item in found]

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

    async def _list(self, folder: str, is_deep: bool, shown: str) -> list[Any]:
        if not is_deep:
            found = await self._asked(lambda: self._obstore.list_with_delimiter_async(self._store, folder or None), shown, None)
            return list(found["objects"])
        listed: list[Any] = []
        stream: Any = self._obstore.list(self._store, folder or None, chunk_size=_LIST_SIZE)
        while chunk := await self._asked(lambda: anext(stream, None), shown, None):
            listed += chunk
        return listed

    async def _list_signed(self, prefix: str, is_deep: bool, shown: str) -> list[dict[str, Any]]:
        """List objects with their keys as they are, over signed URLs: obstore's listing fails at a key that it cannot read.

        obstore signs URLs of objects only. So the query stands in the endpoint, and its last field takes the slash in front of a key.
        """
        import asyncio
        from urllib.parse import unquote_plus, urlencode

        async def signed(store: Any, key: str) -> str:
            url = await self._asked(lambda: self._obstore.sign_async(store, "GET", key, timedelta(minutes=10)), shown, None)
            return str(url).partition("&X-Amz-")[0] if self._options.store.get("skip_signature") else str(url)

        base, listed, last = (await signed(self._store, "key")).partition("/key?")[0], [], "x-id" if is_deep else "delimiter"
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        while query.get("continuation-token", "first"):
            url = await signed(self._new_store(f"{base}?{urlencode(query)}&{last}="), "")
            tree = await self._asked(partial(asyncio.to_thread, _page, url, self._options.timeout_s), shown, None)
            plain = unquote_plus if tree.findtext("{*}EncodingType") == "url" else str
            for item in tree.iterfind("{*}Contents"):
                key, tag, size, when = (item.findtext(f"{{*}}{name}", "") for name in ("Key", "ETag", "Size", "LastModified"))
                listed.append({"path": plain(key), "e_tag": tag, "size": int(size), "last_modified": datetime.fromisoformat(when)})
            query["continuation-token"] = tree.findtext("{*}NextContinuationToken", "")
        return listed

    def _check_readable(self, key: str) -> None:
        if not is_readable(key):
            raise _unreadable(self._shown(key), "it has a slash at an end, an empty part, '.', '..' or a control character")

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

    def _new_store(self, signing: str = "") -> Any:
        """Make a store; with an endpoint in place of the user's, to sign URLs that begin with it."""
        from obstore import store

        options = self._options
        given = dict(options.store)
        if given.get("skip_signature"):
            given = {"access_key_id": "none", "secret_access_key": "none", **given}  # else signing looks for some
        if signing:
            given = {name: value for name, value in given.items() if "endpoint" not in name and "virtual_hosted" not in name}
            given |= {"endpoint": signing, "virtual_hosted_style_request": True}
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


def _passes(status: int, text: str) -> bool:
    """Tell whether waiting may help: by the status of an answer, or without one."""
    return status in RETRIED or "<Code>RequestTimeout<" in text or not (status or "BareRedirect" in text)


def _unreadable(shown: str, why: str) -> StorageError:
    return StorageError(
        f"{shown!r} names or lists a key that obstore cannot read: {why}",
        where=shown,
        fix="give that object a key without empty parts, '.' and '..', and name a folder as folder/**",
    )


def _page(url: str, timeout_s: float) -> Element:
    from urllib.request import urlopen
    from xml.etree import ElementTree

    with urlopen(url, timeout=timeout_s) as answer:
        return ElementTree.fromstring(answer.read())


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


_T = TypeVar("_T")
Work = Callable[["Client", Turn], Coroutine[Any, Any, _T]]


class Client:
    """Runs requests of any number of threads. Each process makes its own: neither a thread nor a connection survives a fork.

    The thread starts with the first request and holds no reference to the storage, so that it ends when the storage is collected.
    """

    def __init__(self, options: StorageOptions) -> None:
        self.options = options
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._closed = False
        self._transports: dict[tuple[str, str, int, str], BucketTransport | WebTransport] = {}
        self._gates: dict[tuple[str, str, int], asyncio.Semaphore] = {}

    def run(self, work: Work[_T], shown: str) -> _T:
        """Run `work(self, turn)` in the loop and wait for it; from any thread. Ends at the deadline at the latest.

        Args:
            work: makes the coroutine.
            shown: what is read, for errors.

        Raises:
            StorageError: the deadline has passed, or the storage was closed; or an error of `work`.
            ReadBrokenOff: the feed whose worker calls was closed.
        """
        import asyncio
        from concurrent.futures import CancelledError

        loop = self._started(shown)
        coroutine = self.limited(work, shown)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop has ended meanwhile
            coroutine.close()
            raise _closed(shown) from None
        try:
            with breakable(future.cancel, CancelledError, shown):
                return future.result()
        except CancelledError:
            raise _closed(shown) from None
        finally:
            future.cancel()  # does nothing after the result; after a KeyboardInterrupt the rest is of no use

    def stop(self) -> None:
        """Let the thread end and waiting reads fail, without waiting for it. From any thread, also the collector's."""
        self._closed = True
        if self._loop is None or self._end is None or self.pid != os.getpid():
            return
        try:
            self._loop.call_soon_threadsafe(self._end.set)
        except RuntimeError:
            return  # the loop has ended

    def close(self) -> None:
        """Stop and wait for the thread."""
        with self._lock:
            self.stop()
            thread = self._thread
        if thread is not None and self.pid == os.getpid() and thread is not threading.current_thread():
            thread.join()

    def transport(self, address: Address) -> BucketTransport | WebTransport:
        """Return the transport of an address; in the loop."""
        key = (*address.origin, address.user)
        if key not in self._transports:
            kind = BucketTransport if address.in_bucket else WebTransport
            self._transports[key] = kind(address, self.options)
        return self._transports[key]

    def gate(self, address: Address) -> asyncio.Semaphore:
        """Return the semaphore for requests in flight to the host of an address; in the loop."""
        import asyncio

        gate = self._gates.get(address.origin)
        if gate is None:
            gate = self._gates[address.origin] = asyncio.Semaphore(self.options.max_requests)
        return gate

    async def fetch(self, turn: Turn, address: Address, part: Part) -> None:
        """Fetch one part with one request, and again as often as it may be; in the loop.

        Raises:
            StorageError: it did not come.
            ObjectChanged: it is another object now.
        """
        transport = self.transport(address)
        await persist(lambda: transport.fetch(part), transport, self.gate(address), lambda: part.shown, turn, is_found=True)

    async def limited(self, work: Work[_T], shown: str) -> _T:
        """Do `work(self, turn)` until the deadline; in the loop.

        Raises:
            StorageError: the deadline has passed; or an error of `work`.
        """
        import asyncio

        turn = Turn(self.options, asyncio.get_running_loop().time() + self.options.deadline_s)
        try:
            async with asyncio.timeout_at(turn.deadline):
                return await work(self, turn)
        except TimeoutError:
            raise exhausted(repr(shown), f"{self.options.deadline_s:g} s, the deadline", turn.last) from None

    def _started(self, shown: str) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise _closed(shown)
            if self._loop is None:
                import asyncio

                runner, self._end = asyncio.Runner(loop_factory=asyncio.new_event_loop), asyncio.Event()
                loop = runner.get_loop()  # here and not in the thread: it may fail for want of descriptors
                # A daemon: a program that ends does not wait for a storage that was not closed.
                self._thread = threading.Thread(target=self._serve, args=(runner, self._end), name="penstock-remote", daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop

    def _serve(self, runner: asyncio.Runner, end: asyncio.Event) -> None:
        with runner:
            runner.run(self._until_end(end))

    async def _until_end(self, end: asyncio.Event) -> None:
        import asyncio

        await end.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in self._transports.values():
            await transport.close()


async def together(works: list[Any]) -> list[Any]:
    """Run coroutines at once; the first error ends them all, and is raised when they have ended: they write into the caller's memory."""
    import asyncio

    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _closed(shown: str) -> StorageError:
    return StorageError(f"{shown!r} was being read when the storage was closed", where=shown, fix="close it behind the last read")
