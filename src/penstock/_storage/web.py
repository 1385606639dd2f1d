"""Objects of a web server: HTTP/1.1 with ranges, over Python's own sockets and TLS.

Three parts: `Reply` and functions that check an answer, `Connection`, and `WebTransport`. obstore's HTTP store cannot take their place: it
follows every redirect with the user's headers, has no query strings, and shows neither Retry-After nor check sums (decision 27).
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
import zlib
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._contracts.storage import StorageOptions
from penstock._storage.parts import CHECK_HOST, RETRIED, AskAgain, CredentialsRefused, Part, RemoteObject, changed, not_there
from penstock._storage.urls import Address, check_host, is_loopback, parse_url
from penstock.errors import PlanError, StorageError

if TYPE_CHECKING:
    import asyncio

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = "penstock"
_MAX_REMEMBERED = 10_000
_LIMIT_BYTES = 1 << 20
_SKIPPED_BYTES = 1 << 16
_SHOWN = 80
_YOUNG_S = 5.0
_NO_PARTS = "download it, or ask another server: this one does not serve parts of files"
_RANGE = re.compile(r"bytes\s+(?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)
_T = TypeVar("_T")


# -- answers -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status line and headers of an answer; names in small letters, values of a repeated one joined by commas."""

    version: str
    status: int
    headers: Mapping[str, str]

    @property
    def length(self) -> int | None:
        """Return the bytes of the body as announced, or None."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    @property
    def is_chunked(self) -> bool:
        """Tell whether the body comes in chunks."""
        return self.headers.get("transfer-encoding", "").lower().endswith("chunked")

    @property
    def keeps_alive(self) -> bool:
        """Tell whether the connection can serve another request behind this answer."""
        return self.version == "HTTP/1.1" and "close" not in self.headers.get("connection", "").lower()


def parse_head(data: bytes) -> Reply:
    """Read status line and headers.

    Raises:
        AskAgain: the bytes are no head of HTTP/1.
    """
    lines = data.decode("latin-1").split("\r\n")
    first = re.fullmatch(r"(HTTP/1\.[01]) ([1-5]\d\d)(?: [^\r\n]*)?", lines[0])
    if first is None:
        raise AskAgain(f"the answer begins with {lines[0][:_SHOWN]!r}, which is no HTTP")
    headers: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        name, colon, value = line.partition(":")
        if not colon:
            raise AskAgain(f"the answer has the header line {line[:_SHOWN]!r}")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Reply(version=first[1], status=int(first[2]), headers=headers)


def refuse_status(reply: Reply, shown: str, found: RemoteObject | None) -> None:
    """Raise the error that belongs to a status other than success.

    Raises:
        AskAgain: the next try may succeed.
        CredentialsRefused: 401 or 403.
        ObjectChanged: the object is another one.
        StorageError: asking again is no use.
    """
    status = reply.status
    if 200 <= status < 300:
        return
    reason = f"the server said {status}"
    if status in RETRIED:
        raise AskAgain(reason, retry_after_s(reply))
    if status in (401, 403):
        raise CredentialsRefused(reason)
    if status in (404, 410):
        raise not_there(shown, reason)
    if status in (412, 416) and found is not None:
        raise changed(found, reply.headers.get("etag") or reply.headers.get("content-range") or reason)
    raise StorageError(f"{shown!r} cannot be read: {reason}", where=shown, fix="check the URL")


def retry_after_s(reply: Reply) -> float:
    """Return how many seconds the server wants to be left alone; 0 when it gives no number and no date."""
    text = reply.headers.get("retry-after", "")
    return float(text[:9]) if text.isascii() and text.isdigit() else max(0.0, _seconds(text) - time.time())


def check_partial(reply: Reply, part: Part) -> None:
    """Check that an answer is the requested range, of the object that was found.

    Raises:
        AskAgain: it is something else: all of the object, another range, coded bytes, a login page.
        ObjectChanged: it is of another object.
    """
    headers, found = reply.headers, part.found
    is_all = reply.status == 200 and part.begin == 0 and part.end == found.size == reply.length  # as some answer a range of all bytes
    if reply.status != 206 and not is_all:
        raise AskAgain(f"the server said {reply.status} {headers.get('content-type', '')!r} to a range, not 206")
    _check_same(reply, found)
    _check_plain(reply)
    if is_all:
        return
    given = _RANGE.fullmatch(headers.get("content-range", "").strip())
    if given is None or given[1] is None or (int(given[1]), int(given[2])) != (part.begin, part.end - 1):
        raise AskAgain(f"the server sent {headers.get('content-range', 'no range')[:_SHOWN]!r} for bytes {part.begin}-{part.end - 1}")
    if given[3] not in ("*", str(found.size)):
        raise changed(found, f"{given[3]} bytes") if not found.version else AskAgain(f"the server says {given[3]} bytes of {found.size}")
    if reply.length not in (None, part.end - part.begin):
        raise AskAgain(f"the server announces {reply.length} bytes for a range of {part.end - part.begin}")


def _check_plain(reply: Reply, fix: str = "") -> None:
    coding = reply.headers.get("content-encoding", "identity").lower()
    if coding not in ("identity", "", "aws-chunked"):
        raise AskAgain(f"the server sent Content-Encoding {coding[:_SHOWN]!r}, which was not asked for", fix=fix)


def _check_same(reply: Reply, found: RemoteObject) -> None:
    etag, modified = reply.headers.get("etag", ""), reply.headers.get("last-modified", "")
    # A part has the validators that the whole would have (RFC 9110, 15.3.7). Without them nothing shows that it is of the same object.
    if found.version and not (found.etag and etag) and not (found.modified and modified):
        raise AskAgain("the server sent neither the ETag nor the Last-Modified that the object had")
    if found.etag and etag and etag != found.etag:
        raise changed(found, etag)
    if not (found.strong_etag and etag) and found.modified and modified and modified != found.modified:
        raise changed(found, modified)


def describe_object(reply: Reply, key: str, shown: str) -> RemoteObject:
    """Read size and version from the answer to a request for the first byte.

    Raises:
        AskAgain: the server does not do ranges, or not now.
    """
    headers = reply.headers
    given = _RANGE.fullmatch(headers.get("content-range", "").strip())
    is_empty = reply.status == 416 and given is not None and given[3] == "0"
    if reply.status == 200 and reply.length in (0, 1):  # all bytes that a range of one can have
        size = reply.length or 0
    elif is_empty or (reply.status == 206 and given is not None and given[3] != "*" and given[1] == "0"):
        size = int(given[3]) if given is not None else 0
    else:
        said = f"{reply.status} {headers.get('content-type', '')[:_SHOWN]!r} {headers.get('content-range', 'without a range')[:_SHOWN]!r}"
        raise AskAgain(f"the server said {said} to a range", fix=_NO_PARTS)
    _check_plain(reply, _NO_PARTS)
    modified = headers.get("last-modified", "")
    is_young = _seconds(headers.get("date", "")) - _seconds(modified) < _YOUNG_S
    return RemoteObject(key=key, shown=shown, size=size, etag=headers.get("etag", ""), modified=modified, is_young=is_young)


def _seconds(date: str) -> float:
    """Return the time of a header, or now where it is none."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return time.time()


def check_sums(reply: Reply, part: Part, begin: int) -> None:
    """Compare the server's check sums with the bytes of a part from `begin` on.

    Raises:
        AskAgain: one differs; the bytes count as missing.
    """
    sums = list(_sums_of(reply.headers, begin == 0 and part.end == part.found.size))
    body = part.body(begin) if sums else memoryview(b"")
    for name, kind, value in sums:
        computed = _sum(kind, body) if value else None
        if computed is not None and computed != value:
            part.num_got = begin - part.start
            raise AskAgain(f"the bytes do not have the check sum {name} that the server gave")


def _sums_of(headers: Mapping[str, str], is_whole: bool) -> Iterator[tuple[str, str, str]]:
    """Return header, kind and value of each check sum: those of the answer, and those of the object if the answer is all of it."""
    for kind, value in _pairs(headers.get("content-digest", "")):
        yield "Content-Digest", kind, value.strip(":")
    if not is_whole:
        return
    yield "Content-MD5", "md5", headers.get("content-md5", "")
    for kind, value in _pairs(headers.get("x-goog-hash", "")):
        yield "x-goog-hash", kind, value
    for name, value in headers.items():
        if name.startswith("x-amz-checksum-"):
            yield name, name.removeprefix("x-amz-checksum-"), value


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if equals:
            yield name.strip(), value.strip()


def _sum(kind: str, body: memoryview) -> str | None:
    """Return a check sum as text, or None for a kind that is not known."""
    kind = kind.replace("-", "").lower()
    if kind == "crc32":
        return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    if kind in ("md5", "sha1", "sha256", "sha512"):
        return base64.b64encode(hashlib.new(kind, body, usedforsecurity=False).digest()).decode()
    return None


# -- connections -------------------------------------------------------------------------------------------------------------------


class Connection:
    """A connection, used by one request at a time, in the event loop's thread.

    Attributes:
        is_stale: the server had closed it before the last request, which therefore did not fail by itself.
        is_clean: the last answer was read to its end.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, options: StorageOptions) -> None:
        self._reader, self._writer, self._options = reader, writer, options
        self._num_requests = 0
        self.is_stale = False
        self.is_clean = True

    @property
    def peer(self) -> str:
        """Return the address of the other side."""
        name = self._writer.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def is_usable(self) -> bool:
        """Tell whether another request can be sent."""
        return self.is_clean and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """Close at once, without waiting."""
        self._writer.transport.abort()

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read status and headers.

        Raises:
            AskAgain: the connection broke, no answer came in time, or the answer is no HTTP.
        """
        self._num_requests += 1
        self.is_clean = False
        self._writer.write(request)
        return parse_head(await self._timed(self._head(), "no answer came"))

    async def read_body(self, reply: Reply, part: Part) -> None:
        """Read the body into a part, which keeps the bytes that came when the rest does not come.

        Raises:
            AskAgain: the connection broke, or the bytes come too slowly, or more of them than asked for.
        """
        if reply.is_chunked:
            await self._read_chunks(part)
            self.is_clean = reply.keeps_alive
        else:
            await self._read_to(part, part.end)
            self.is_clean = reply.length is not None and reply.keeps_alive

    async def skip_body(self, reply: Reply) -> None:
        """Read a short body of no interest, so that the connection can be used again.

        Raises:
            AskAgain: the connection broke.
        """
        if reply.length is not None and reply.length <= _SKIPPED_BYTES and reply.keeps_alive:
            await self._timed(self._exactly(reply.length), "the answer stopped")
            self.is_clean = True

    async def _head(self) -> bytes:
        import asyncio

        try:
            return await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            self.is_stale = self._num_requests > 1 and not error.partial
            raise AskAgain(f"the connection was closed after {len(error.partial)} bytes of the answer's head") from None
        except asyncio.LimitOverrunError:
            raise AskAgain(f"the answer's head has no end in {_LIMIT_BYTES} bytes") from None
        except ConnectionError as error:
            self.is_stale = self._num_requests > 1
            raise AskAgain(f"the connection failed: {error}") from None

    async def _exactly(self, count: int) -> bytes:
        import asyncio

        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise AskAgain(f"the connection was closed after {len(error.partial)} of {count} bytes") from None

    async def _read_to(self, part: Part, end: int) -> None:
        import asyncio

        now = asyncio.get_running_loop().time
        pace, window_s = self._options.min_bytes_per_s, self._options.timeout_s
        window_ends, wanted = now() + window_s, part.num_got + pace * window_s
        while part.begin < end:
            data = await self._timed(self._reader.read(end - part.begin), f"nothing more came behind byte {part.begin}")
            if not data:
                raise AskAgain(f"the connection was closed at byte {part.begin} of {end}")
            part.add(data)
            if now() > window_ends:
                if part.num_got < wanted and part.begin < end:
                    raise AskAgain(f"fewer than {pace:.0f} bytes a second came")
                window_ends, wanted = now() + window_s, part.num_got + pace * window_s

    async def _read_chunks(self, part: Part) -> None:
        while size := await self._timed(self._chunk_size(), f"no further chunk came behind byte {part.begin}"):
            if part.begin + size > part.end:
                raise AskAgain(f"the server sends more than the {part.size} bytes asked for")
            await self._read_to(part, part.begin + size)
            await self._line_end("a chunk has no end", "a chunk has no end")
        await self._line_end("the chunks have no end", "something follows the chunks")
        if part.begin < part.end:
            raise AskAgain(f"the chunks end at byte {part.begin} of {part.end}")

    async def _chunk_size(self) -> int:
        import asyncio

        try:
            line = await self._reader.readuntil(b"\r\n")
        except asyncio.IncompleteReadError:
            raise AskAgain("the connection was closed between chunks") from None
        except asyncio.LimitOverrunError:
            raise AskAgain("a chunk's length has no end") from None
        text = line.split(b";")[0].strip()
        if re.fullmatch(rb"[0-9a-fA-F]{1,15}", text) is None:
            raise AskAgain(f"a chunk's length is {text[:40]!r}")
        return int(text, 16)

    async def _line_end(self, late: str, wrong: str) -> None:
        if await self._timed(self._exactly(2), late) != b"\r\n":
            raise AskAgain(wrong)

    async def _timed(self, work: Coroutine[Any, Any, _T], late: str) -> _T:
        return await _timed(work, self._options.timeout_s, late)


async def _connect(host: str, port: int, context: Any, options: StorageOptions) -> Connection:
    """Open a connection; with a TLS context, check the server's certificate.

    Raises:
        AskAgain: the name is not known, no server listens, the certificate is not good, or it takes too long.
    """
    import asyncio

    name = host if context is not None else None
    opening = asyncio.open_connection(host, port, ssl=context, server_hostname=name, limit=_LIMIT_BYTES)
    reader, writer = await _timed(opening, options.timeout_s, f"no connection to {host}:{port}")
    return Connection(reader, writer, options)


async def _timed(work: Coroutine[Any, Any, _T], limit_s: float, late: str) -> _T:
    """Await something for so long at most.

    Raises:
        AskAgain: it took longer, or the connection broke.
    """
    import asyncio

    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise AskAgain(f"{late} for {limit_s:g} s") from None
    except (OSError, UnicodeError) as error:  # refused, reset, no route, name not found, TLS are OSErrors; UnicodeError: no name of a host
        import socket

        is_unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
        fix = CHECK_HOST if is_unknown or isinstance(error, UnicodeError) or hasattr(error, "verify_code") else ""
        raise AskAgain(f"the connection failed: {error}", fix=fix) from None


# -- requests ----------------------------------------------------------------------------------------------------------------------


class WebTransport:
    """See `Transport`; for one scheme, host and port.

    Args:
        origin: an address there.
        options: as the user gave them.
    """

    def __init__(self, origin: Address, options: StorageOptions) -> None:
        self._origin = origin
        self._options = options
        self._idle: dict[tuple[str, str, int], list[Connection]] = {}
        self._open: dict[Connection, tuple[str, str, int]] = {}
        self._redirected: dict[str, Address] = {}
        self._headers: str | None = None
        self._context: Any = None

    async def find(self, key: str) -> RemoteObject:
        """Ask for the first byte: its answer holds the size and shows that there are ranges; HEAD shows neither to be relied on.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        shown = self._address(key).shown
        connection, reply = await self._ask(key, shown, "bytes=0-0", "")
        try:
            if reply.status != 416:
                refuse_status(reply, shown, None)
            found = describe_object(reply, key, shown)
            await connection.skip_body(reply)
        finally:
            self._put_back(connection)
        return found

    async def fetch(self, part: Part) -> None:
        """See `Transport`."""
        begin, found = part.begin, part.found
        connection, reply = await self._ask(found.key, found.shown, f"bytes={begin}-{part.end - 1}", found.strong_etag)
        try:
            refuse_status(reply, found.shown, found)
            check_partial(reply, part)
            await connection.read_body(reply, part)
            check_sums(reply, part, begin)
        finally:
            self._put_back(connection)

    def refresh(self) -> None:
        """Ask the user's function for headers again, and the first host where redirects lead now."""
        self._headers = None
        self._redirected.clear()

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()

    async def _ask(self, key: str, shown: str, byte_range: str, match: str) -> tuple[Connection, Reply]:
        """Ask, and follow redirects. Where one leads to another host, the next request goes there directly."""
        address = self._redirected.get(key) or self._address(key)
        for _ in range(_MAX_REDIRECTS + 1):
            connection, reply = await self._ask_one(address, byte_range, match)
            if reply.status not in _REDIRECTS:
                was_sent = address.origin != self._origin.origin
                if was_sent and reply.status in (401, 403, 404, 410) and self._redirected.pop(key, None) is not None:
                    self._drop(connection)
                    raise AskAgain(f"where {shown!r} leads to said {reply.status}")
                return connection, reply
            self._drop(connection)
            address = self._follow(address, reply, shown)
            if len(self._redirected) < _MAX_REMEMBERED and address.origin != self._origin.origin:
                self._redirected[key] = address
        self._redirected.pop(key, None)
        raise StorageError(f"{shown!r} leads on more than {_MAX_REDIRECTS} times", where=shown, fix="give the URL that it leads to")

    async def _ask_one(self, address: Address, byte_range: str, match: str) -> tuple[Connection, Reply]:
        request = self._request(address, byte_range, match)
        connection = self._take_idle(address) or await self._connect(address)
        while True:
            try:
                return connection, await connection.ask(request)
            except AskAgain:
                self._drop(connection)
                if not connection.is_stale:
                    raise
            except BaseException:
                self._drop(connection)
                raise
            # The server closed a connection that had been idle: no failure of this request. The other idle ones may be as old.
            connection = await self._connect(address)

    def _follow(self, address: Address, reply: Reply, shown: str) -> Address:
        from urllib.parse import urljoin

        try:
            target = urljoin(f"{address.scheme}://{_host(address)}{address.key}", reply.headers.get("location", ""))
            found = parse_url(target, self._options, shown)
        except PlanError as error:
            raise _refused(shown, error.what) from None
        except ValueError:
            raise _refused(shown, "it is no URL") from None
        if address.scheme == "https" and found.scheme != "https":
            raise _refused(shown, "it is not encrypted")
        if found.in_bucket or found.user:
            raise _refused(shown, "it is no plain URL")
        if found.host != self._origin.host and found.host not in self._options.redirect_hosts:
            raise _refused(shown, f"the host {found.host!r} is not in redirect_hosts")
        if found.host == self._origin.host and found.port != self._origin.port and (found.scheme, found.port) != ("https", 443):
            raise _refused(shown, f"port {found.port} is another one")
        return found

    def _take_idle(self, address: Address) -> Connection | None:
        idle = self._idle.get(address.origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            self._drop(connection)
        return None

    async def _connect(self, address: Address) -> Connection:
        if address.scheme == "https" and self._context is None:
            import ssl

            self._context = ssl.create_default_context()
        connection = await _connect(address.host, address.port, self._context if address.scheme == "https" else None, self._options)
        self._open[connection] = address.origin
        try:
            check_host(connection.peer, address.shown)
            if address.origin != self._origin.origin and is_loopback(connection.peer) and not is_loopback(self._origin.host):
                raise _refused(address.shown, "it is this machine")
        except (PlanError, StorageError):
            self._drop(connection)
            raise
        return connection

    def _put_back(self, connection: Connection) -> None:
        if connection.is_usable:
            self._idle.setdefault(self._open[connection], []).append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._open.pop(connection, None)

    def _address(self, key: str) -> Address:
        origin = self._origin
        return Address(scheme=origin.scheme, host=origin.host, port=origin.port, key=key, user=origin.user)

    def _request(self, address: Address, byte_range: str, match: str) -> bytes:
        lines = [f"GET {address.key} HTTP/1.1", f"Host: {_host(address)}", f"Range: {byte_range}", "Accept-Encoding: identity"]
        lines += [f"User-Agent: {_AGENT}", "Accept: */*"]
        if match:
            lines.append(f"If-Match: {match}")
        if address.host == self._origin.host:  # no other host sees the headers that the user gave for this one
            lines.append(self._own_headers())
        return ("\r\n".join(line for line in lines if line) + "\r\n\r\n").encode("latin-1")

    def _own_headers(self) -> str:
        if self._headers is None:
            given = self._options.headers
            headers = dict(given() if callable(given) else given or {})
            if self._origin.user and not any(name.lower() == "authorization" for name in headers):
                headers["Authorization"] = f"Basic {base64.b64encode(self._origin.user.encode()).decode()}"
            self._headers = "\r\n".join(f"{_one_line(name)}: {_one_line(value)}" for name, value in headers.items())
        return self._headers


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return host if address.port == {"https": 443, "http": 80}.get(address.scheme) else f"{host}:{address.port}"


def _one_line(text: str) -> str:
    if not isinstance(text, str) or "\r" in text or "\n" in text:
        raise PlanError("a header in StorageOptions is no text of one line", where="StorageOptions", fix="look for a newline at its end")
    return text


def _refused(shown: str, why: str) -> StorageError:
    return StorageError(
        f"{shown!r} leads somewhere else, where it may not: {why}",
        where=shown,
        fix="give the URL that it leads to; or name the host in redirect_hosts, if you trust it",
    )
