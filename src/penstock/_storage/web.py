"""Objects of a web server: ranges over `http.client`, and what an answer must say before its bytes are taken.

obstore's HTTP store cannot take its place: it follows every redirect with the user's headers, has no query strings, and does not show
Retry-After (decision 27).
"""

from __future__ import annotations

import base64
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from penstock._contracts.storage import StorageOptions
from penstock._storage.requests import CHECK_HOST, RETRIED, AskAgain, CredentialsRefused, Part, RemoteObject, Turn, changed, not_there
from penstock._storage.urls import Address, check_host, is_loopback, parse_url
from penstock.errors import PlanError, StorageError

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REMEMBERED = 10_000
_PIECE_BYTES = 1 << 16
_SHOWN = 80
_YOUNG_S = 5.0
_NO_PARTS = "download it, or ask another server: this one does not serve parts of files"
_RANGE = re.compile(r"bytes\s+(?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)


# -- answers -----------------------------------------------------------------------------------------------------------------------


def refuse_status(reply: HTTPResponse, shown: str, found: RemoteObject | None) -> None:
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
        raise AskAgain(reason, retry_after_s(reply.headers.get("retry-after", "")))
    if status in (401, 403):
        raise CredentialsRefused(reason)
    if status in (404, 410):
        raise not_there(shown, reason)
    if status in (412, 416) and found is not None:
        raise changed(found, reply.headers.get("etag") or reply.headers.get("content-range") or reason)
    raise StorageError(f"{shown!r} cannot be read: {reason}", where=shown, fix="check the URL")


def retry_after_s(text: str) -> float:
    """Return how many seconds the server wants to be left alone; 0 when it gives no number and no date."""
    return float(text[:9]) if text.isascii() and text.isdigit() else max(0.0, _seconds(text) - time.time())


def check_partial(reply: HTTPResponse, part: Part) -> None:
    """Check that an answer is the requested range, of the object that was found.

    Raises:
        AskAgain: it is something else: all of the object, another range, coded bytes, a login page.
        ObjectChanged: it is of another object.
    """
    headers, found, length = reply.headers, part.found, reply.length
    is_all = reply.status == 200 and part.begin == 0 and part.end == found.size == length  # as some answer a range of all bytes
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
    if length not in (None, part.end - part.begin):
        raise AskAgain(f"the server announces {length} bytes for a range of {part.end - part.begin}")


def _check_plain(reply: HTTPResponse, fix: str = "") -> None:
    coding = reply.headers.get("content-encoding", "identity").lower()
    if coding not in ("identity", "", "aws-chunked"):
        raise AskAgain(f"the server sent Content-Encoding {coding[:_SHOWN]!r}, which was not asked for", fix=fix)


def _check_same(reply: HTTPResponse, found: RemoteObject) -> None:
    etag, modified = reply.headers.get("etag", ""), reply.headers.get("last-modified", "")
    # A part has the validators that the whole would have (RFC 9110, 15.3.7). Without them nothing shows that it is of the same object.
    if found.version and not (found.etag and etag) and not (found.modified and modified):
        raise AskAgain("the server sent neither the ETag nor the Last-Modified that the object had")
    if found.etag and etag and etag != found.etag:
        raise changed(found, etag)
    if not (found.strong_etag and etag) and found.modified and modified and modified != found.modified:
        raise changed(found, modified)


def describe_object(reply: HTTPResponse, key: str, shown: str) -> RemoteObject:
    """Read size and version from the answer to a request for the first byte.

    Raises:
        AskAgain: the server does not do ranges, or not now.
    """
    headers = reply.headers
    given = _RANGE.fullmatch(headers.get("content-range", "").strip())
    if reply.status == 200 and reply.length in (0, 1):  # all bytes that a range of one can have
        size = reply.length or 0
    elif given is not None and ((reply.status == 416 and given[3] == "0") or (reply.status == 206 and given[3] != "*" and given[1] == "0")):
        size = int(given[3])
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


# -- connections -------------------------------------------------------------------------------------------------------------------


class _Broken(AskAgain):
    """The connection broke."""


class Connection:
    """A connection, used by one request at a time.

    Args:
        address: where to.
        context: checks the server's certificate; None without TLS.
        options: as the user gave them.

    Raises:
        AskAgain: the name is not known, no server listens, the certificate is not good, or it takes too long.
    """

    def __init__(self, address: Address, context: SSLContext | None, options: StorageOptions) -> None:
        from http.client import HTTPConnection, HTTPSConnection

        self._options = options
        if context is None:
            self._http = HTTPConnection(address.host, address.port, timeout=options.timeout_s)
        else:
            self._http = HTTPSConnection(address.host, address.port, timeout=options.timeout_s, context=context)
        with self._trying(f"no connection to {address.host}:{address.port}"):
            self._http.connect()
            self._socket: socket.socket = self._http.sock
            self.peer = str(self._socket.getpeername()[0])

    def break_off(self) -> None:
        """End what another thread does with this connection."""
        with suppress(OSError):  # it has ended
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not that of TLS, which would take the state that the other one uses

    def close(self) -> None:
        """Close it."""
        self._http.close()

    def ask(self, path: str, headers: dict[str, str]) -> HTTPResponse:
        """Send a request and read status and headers.

        Raises:
            AskAgain: the connection broke, no answer came in time, or the answer is no HTTP.
        """
        with self._trying("no answer came"):
            self._http.request("GET", path, headers=headers)
            return self._http.getresponse()

    def read_body(self, reply: HTTPResponse, part: Part) -> None:
        """Read the body into a part, which keeps the bytes that came when the rest does not come.

        Raises:
            AskAgain: the connection broke, or the bytes come too slowly, or more of them than asked for.
        """
        pace, window_s = self._options.min_bytes_per_s, self._options.timeout_s
        window_ends, wanted = time.monotonic() + window_s, part.num_got + pace * window_s
        with self._trying("nothing more came"):
            while data := reply.read1(_PIECE_BYTES):
                if part.begin + len(data) > part.end:
                    raise AskAgain(f"the server sends more than the {part.size} bytes asked for")
                part.add(data)
                if time.monotonic() > window_ends:
                    if part.num_got < wanted and part.begin < part.end:
                        raise AskAgain(f"fewer than {pace:.0f} bytes a second came")
                    window_ends, wanted = time.monotonic() + window_s, part.num_got + pace * window_s
        if part.begin < part.end:
            raise AskAgain(f"the answer ended at byte {part.begin} of {part.end}")

    @contextmanager
    def _trying(self, late: str) -> Iterator[None]:
        from http.client import HTTPException

        try:
            yield
        except TimeoutError:
            raise AskAgain(f"{late} for {self._options.timeout_s:g} s") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
            is_unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
            fix = CHECK_HOST if is_unknown or isinstance(error, UnicodeError) or hasattr(error, "verify_code") else ""
            kind = _Broken if isinstance(error, ConnectionError) else AskAgain
            raise kind(f"the connection failed: {error}", fix=fix) from None
        except HTTPException as error:
            raise AskAgain(f"the answer is no proper HTTP: {type(error).__name__} {error}"[:_SHOWN]) from None


# -- requests ----------------------------------------------------------------------------------------------------------------------


class WebTransport:
    """How objects of one scheme, host and port are asked for; from several threads.

    Args:
        origin: an address there.
        options: as the user gave them.
    """

    def __init__(self, origin: Address, options: StorageOptions) -> None:
        self._origin = origin
        self._options = options
        self._idle: dict[tuple[str, str, int], list[Connection]] = {}
        self._redirected: dict[str, Address] = {}
        self._headers: dict[str, str] | None = None

    def find(self, key: str, turn: Turn) -> RemoteObject:
        """Ask for the first byte: its answer holds the size and shows that there are ranges; HEAD shows neither to be relied on.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        shown = self._origin._replace(key=key).shown
        with self._answer(key, shown, "bytes=0-0", "", turn) as (connection, reply):
            if reply.status != 416:
                refuse_status(reply, shown, None)
            found = describe_object(reply, key, shown)
            if reply.length == 1:  # so that the connection can be used again
                connection.read_body(reply, Part(found, 0, memoryview(bytearray(1))))
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
        found = part.found
        with self._answer(found.key, found.shown, f"bytes={part.begin}-{part.end - 1}", found.strong_etag, turn) as (connection, reply):
            refuse_status(reply, found.shown, found)
            check_partial(reply, part)
            connection.read_body(reply, part)

    def refresh(self) -> None:
        """Ask the user's function for headers again, and the first host where redirects lead now."""
        self._headers = None
        self._redirected.clear()

    def close(self) -> None:
        """Close the connections, of which none is in use."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    @contextmanager
    def _answer(self, key: str, shown: str, byte_range: str, match: str, turn: Turn) -> Iterator[tuple[Connection, HTTPResponse]]:
        """Ask, and follow redirects. Where one leads to another host, the next request goes there directly."""
        address = self._redirected.get(key) or self._origin._replace(key=key)
        for _ in range(_MAX_REDIRECTS + 1):
            connection, reply = self._ask_one(address, byte_range, match, turn)
            try:
                if reply.status not in _REDIRECTS:
                    was_sent = address.origin != self._origin.origin
                    if was_sent and reply.status in (401, 403, 404, 410) and self._redirected.pop(key, None) is not None:
                        raise AskAgain(f"where {shown!r} leads to said {reply.status}")
                    with turn.breaking(connection.break_off):
                        yield connection, reply
                    return
            finally:
                if (reply.length == 0 or reply.isclosed()) and not reply.will_close:
                    reply.close()
                    self._idle[address.origin].append(connection)
                else:
                    reply.close()
                    connection.close()
            address = self._follow(address, reply.headers.get("location", ""), shown)
            if len(self._redirected) < _MAX_REMEMBERED and address.origin != self._origin.origin:
                self._redirected[key] = address
        self._redirected.pop(key, None)
        raise StorageError(f"{shown!r} leads on more than {_MAX_REDIRECTS} times", where=shown, fix="give the URL that it leads to")

    def _ask_one(self, address: Address, byte_range: str, match: str, turn: Turn) -> tuple[Connection, HTTPResponse]:
        headers = {"Range": byte_range, "User-Agent": "penstock", "Accept": "*/*", **({"If-Match": match} if match else {})}
        if address.host == self._origin.host:  # no other host sees the headers that the user gave for this one
            headers |= self._own_headers()
        idle = self._idle.setdefault(address.origin, [])
        while True:
            try:
                connection, is_old = idle.pop(), True
            except IndexError:
                connection, is_old = self._connect(address), False
            try:
                with turn.breaking(connection.break_off):
                    return connection, connection.ask(address.key, headers)
            except _Broken:
                connection.close()
                if not is_old:  # else the server closed it while it was idle: no failure of this request
                    raise
            except BaseException:
                connection.close()
                raise

    def _follow(self, address: Address, location: str, shown: str) -> Address:
        from urllib.parse import urljoin

        try:
            host = f"[{address.host}]" if ":" in address.host else address.host
            found = parse_url(urljoin(f"{address.scheme}://{host}:{address.port}{address.key}", location), self._options, shown)
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

    @cached_property
    def _context(self) -> SSLContext:
        from ssl import create_default_context

        return create_default_context()

    def _connect(self, address: Address) -> Connection:
        connection = Connection(address, self._context if address.scheme == "https" else None, self._options)
        try:
            check_host(connection.peer, address.shown)
            if address.origin != self._origin.origin and is_loopback(connection.peer) and not is_loopback(self._origin.host):
                raise _refused(address.shown, "it is this machine")
        except (PlanError, StorageError):
            connection.close()
            raise
        return connection

    def _own_headers(self) -> dict[str, str]:
        headers = self._headers
        if headers is None:
            given = self._options.headers
            headers = {_one_line(name): _one_line(value) for name, value in dict(given() if callable(given) else given or {}).items()}
            if self._origin.user and not any(name.lower() == "authorization" for name in headers):
                headers["Authorization"] = f"Basic {base64.b64encode(self._origin.user.encode()).decode()}"
            self._headers = headers
        return headers


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
