"""A web server and S3 endpoint on this machine that answers wrongly when told to. Tests of remote files and benchmarks/remote.py use it.

It knows GET, HEAD, ranges, If-Match and listings, and checks no signature.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

__all__ = ["Fault", "FaultServer", "Request", "login_page"]

_DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
_REASONS = {200: "OK", 206: "Partial Content"}
_PAGE = b"<html><body>Sign in to use this network</body></html>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came.

    Attributes:
        number: counted from 0.
        method: such as "GET".
        path: without its query.
        query: what stands behind the question mark.
        headers: names in small letters.
        begin: first byte of the range, -1 without one.
        end: behind its last byte.
        time_s: when it came, by `time.monotonic`.
        in_flight: requests being answered then, this one included.
    """

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    begin: int
    end: int
    time_s: float
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with an answer. Everything that is not given is right.

    Attributes:
        status: instead of what is right, with an empty body.
        headers: added, or put in the place of those of that name (in small letters).
        body: instead of the right bytes, with its own Content-Length.
        reset: break the connection (RST) instead of an answer.
        hang_after: send so many bytes of the body, then nothing, and keep the connection.
        reset_after: send so many bytes of the body, then break the connection.
        close_after: send so many bytes of the body, then close it in order.
        whole: 200 and all of the object, whatever range was asked for.
        shift: answer with a range so many bytes further on.
        chunked: send the body in chunks; with `endless`, without their end.
        endless: see `chunked`.
        drip: (bytes, seconds): send so many bytes each time.
        raw: send exactly this and close.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    reset: bool = False
    hang_after: int = -1
    reset_after: int = -1
    close_after: int = -1
    whole: bool = False
    shift: int = 0
    chunked: bool = False
    endless: bool = False
    drip: tuple[int, float] | None = None
    raw: bytes | None = None


class FaultServer:
    """Serves bytes by path from 127.0.0.1, a thread per connection. From any thread.

    Args:
        objects: bytes by path, "bucket/key" for what is read as s3://bucket/key or gs://bucket/key.
        fault: asked once per request; None, or what it returns None for, is answered rightly.
        latency_s: how long each answer is held back.
        tls: an ssl.SSLContext with a certificate.
    """

    def __init__(
        self,
        objects: Mapping[str, bytes],
        fault: Callable[[Request], Fault | None] | None = None,
        latency_s: float = 0.0,
        tls: Any = None,
    ) -> None:
        self.fault = fault
        self.log: list[Request] = []
        self._objects = dict(objects)
        self._tags = {path: f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"' for path, data in objects.items()}
        self._latency_s = latency_s
        self._tls = tls
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._in_flight = 0
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        """Return the address, without a slash at the end."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def most_in_flight(self) -> int:
        """Return how many requests were answered at once at most."""
        return max((request.in_flight for request in self.log), default=0)

    def put(self, path: str, data: bytes) -> None:
        """Replace an object, or add one."""
        with self._lock:
            self._objects[path] = data
            self._tags[path] = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'

    def close(self) -> None:
        """Break all connections and wait for the threads."""
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, body: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=body, args=arguments, name="fault-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, connection)

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            with self._lock:
                self._open.add(connection)
            if self._ended.is_set():
                return
            while self._answer_next(connection):
                pass
        except OSError:
            return  # the other side went, or the server is being closed
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _answer_next(self, connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(1 << 16)
            if not more:
                return False
            data += more
        with self._lock:
            self._in_flight += 1
            request = _parsed(data, len(self.log), self._in_flight)
            self.log.append(request)
        try:
            if self._latency_s:
                self._ended.wait(self._latency_s)
            fault = self.fault(request) if self.fault is not None else None
            return self._answer(connection, request, fault or Fault())
        finally:
            with self._lock:
                self._in_flight -= 1

    def _answer(self, connection: socket.socket, request: Request, fault: Fault) -> bool:
        if fault.raw is not None:
            connection.sendall(fault.raw)
            return False
        if fault.reset:
            return _reset(connection)
        status, headers, body = self._right(request, fault)
        if fault.status:
            status, headers, body = fault.status, {}, b""
        if fault.body is not None:
            body = fault.body
        if fault.chunked:
            headers["transfer-encoding"] = "chunked"
        else:
            headers["content-length"] = str(len(body)) if request.method != "HEAD" else headers.get("content-length", "0")
        headers.update(fault.headers)
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in headers.items()
        )
        if request.method == "HEAD":
            body = b""
        return self._send(connection, head.encode("latin-1") + b"\r\n", body, fault)

    def _send(self, connection: socket.socket, head: bytes, body: bytes, fault: Fault) -> bool:
        if fault.chunked:
            half = len(body) // 2
            parts = [part for part in (body[:half], body[half:]) if part]
            coded = b"".join(b"%x;note=1\r\n%s\r\n" % (len(part), part) for part in parts)
            connection.sendall(head + coded + (b"" if fault.endless else b"0\r\n\r\n"))
            return not fault.endless
        if fault.drip is not None:
            count, gap_s = fault.drip
            connection.sendall(head)
            for at in range(0, len(body), count):
                connection.sendall(body[at : at + count])
                if self._ended.wait(gap_s):
                    return False
            return True
        cut = max(fault.hang_after, fault.reset_after, fault.close_after)
        connection.sendall(head + (body if cut < 0 else body[:cut]))
        if fault.hang_after >= 0:
            connection.recv(1)  # until the other side has had enough
            return False
        if fault.reset_after >= 0:
            return _reset(connection)
        return fault.close_after < 0

    def _right(self, request: Request, fault: Fault) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body as they should be, but for the range that a fault asks for."""
        from urllib.parse import unquote

        path = unquote(request.path.lstrip("/"))
        if "list-type=2" in request.query:
            return 200, {"content-type": "application/xml"}, self._listing(path.strip("/"), request.query)
        with self._lock:
            data, tag = self._objects.get(path), self._tags.get(path, "")
        if data is None:
            return 404, {}, b""
        match = request.headers.get("if-match")
        if match is not None and match != tag:
            return 412, {}, b""
        headers = {"etag": tag, "last-modified": _DATE, "accept-ranges": "bytes"}
        if request.method == "HEAD":
            return 200, {**headers, "content-length": str(len(data))}, b""
        if request.begin < 0 or fault.whole:
            return 200, headers, data
        if request.begin >= len(data):
            return 416, {"content-range": f"bytes */{len(data)}"}, b""
        begin, end = request.begin + fault.shift, min(request.end, len(data)) + fault.shift
        return 206, {**headers, "content-range": f"bytes {begin}-{end - 1}/{len(data)}"}, data[begin:end]

    def _listing(self, bucket: str, query: str) -> bytes:
        from urllib.parse import parse_qs
        from xml.sax.saxutils import escape

        asked = {name: values[0] for name, values in parse_qs(query).items()}
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        items, folders = [], set()
        with self._lock:
            known = sorted((path, len(data), self._tags[path]) for path, data in self._objects.items())
        for path, size, tag in known:
            key = path.removeprefix(f"{bucket}/")
            if key == path or not key.startswith(prefix):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if found:
                folders.add(f"{prefix}{head}{delimiter}")
                continue
            entry = f"<Key>{escape(key)}</Key><ETag>{escape(tag)}</ETag><Size>{size}</Size>"
            items.append(f"<Contents>{entry}<LastModified>2015-10-21T07:28:00.000Z</LastModified></Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        inside = f"<Name>{bucket}</Name><KeyCount>{len(items)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(items)}{common}"
        return f'<?xml version="1.0"?><ListBucketResult>{inside}</ListBucketResult>'.encode()


def login_page() -> Fault:
    """Return what a network that wants a login sends for everything."""
    return Fault(status=200, body=_PAGE, headers={"content-type": "text/html"})


def _parsed(data: bytes, number: int, in_flight: int) -> Request:
    lines = data.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    first, _, last = headers.get("range", "").removeprefix("bytes=").partition("-")
    path, _, query = target.partition("?")
    begin, end = (int(first), int(last) + 1) if first and last else (-1, -1)
    now_s = time.monotonic()
    return Request(
        number=number, method=method, path=path, query=query, headers=headers, begin=begin, end=end, time_s=now_s, in_flight=in_flight
    )


def _reset(connection: socket.socket) -> bool:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False
