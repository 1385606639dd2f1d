"""One connection to a web server: a request, its answer, the next."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._contracts.storage_options import StorageOptions
from penstock._storage.parts import Part
from penstock._storage.replies import Reply, parse_head
from penstock._storage.retrying import AskAgain

if TYPE_CHECKING:
    import asyncio

__all__ = ["Wire", "connect"]

_LIMIT_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16
_CHUNK_LINE_BYTES = 1 << 10
_T = TypeVar("_T")


class Wire:
    """A connection, used by one request at a time, in the event loop's thread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, options: StorageOptions) -> None:
        self._reader, self._writer, self._options = reader, writer, options
        self.num_requests = 0
        self.is_stale = False  # whether the server had closed it before this request, which is no failure of the request's
        self.is_clean = True  # whether the last answer was read to its end

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
        """Close at once; nothing is waited for."""
        self._writer.transport.abort()

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read status and headers.

        Raises:
            AskAgain: the connection broke, nothing came in time, or what came is no HTTP.
        """
        self.num_requests += 1
        self.is_clean = False
        self._writer.write(request)
        data = await self._timed(self._head(), "no answer came")
        return parse_head(data)

    async def read_body(self, reply: Reply, part: Part) -> None:
        """Read the body into a part; what has come is counted even when the rest does not come.

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
        """Be done with a body of no interest: a short one is read, so that the connection can be used again.

        Raises:
            AskAgain: the connection broke.
        """
        if reply.length is not None and reply.length <= _HEAD_BYTES and reply.keeps_alive:
            await self._timed(self._exactly(reply.length), "the answer stopped")
            self.is_clean = True

    async def _head(self) -> bytes:
        import asyncio

        try:
            return await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            self.is_stale = self.num_requests > 1 and not error.partial
            raise AskAgain(f"the connection was closed after {len(error.partial)} bytes of the answer's head") from None
        except asyncio.LimitOverrunError:
            raise AskAgain(f"the answer's head has no end in {_LIMIT_BYTES} bytes") from None
        except ConnectionError as error:
            self.is_stale = self.num_requests > 1
            raise AskAgain(f"the connection failed: {error}") from None

    async def _exactly(self, count: int) -> bytes:
        import asyncio

        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise AskAgain(f"the connection was closed after {len(error.partial)} of {count} bytes") from None

    async def _read_to(self, part: Part, end: int) -> None:
        loop_time = _loop_time()
        window_ends, wanted = loop_time() + self._options.timeout_s, part.num_got + self._options.min_bytes_per_s * self._options.timeout_s
        while part.begin < end:
            data = await self._timed(self._reader.read(end - part.begin), f"nothing more came behind byte {part.begin}")
            if not data:
                raise AskAgain(f"the connection was closed at byte {part.begin} of {end}")
            part.add(data)
            now = loop_time()
            if now > window_ends:
                if part.num_got < wanted and part.begin < end:
                    raise AskAgain(f"fewer than {self._options.min_bytes_per_s:.0f} bytes a second came")
                window_ends, wanted = now + self._options.timeout_s, part.num_got + self._options.min_bytes_per_s * self._options.timeout_s

    async def _read_chunks(self, part: Part) -> None:
        while True:
            size = await self._timed(self._chunk_size(), f"no further chunk came behind byte {part.begin}")
            if size == 0:
                if await self._timed(self._exactly(2), "the chunks have no end") != b"\r\n":
                    raise AskAgain("something follows the chunks")
                break
            if part.begin + size > part.end:
                raise AskAgain(f"the server sends more than the {part.size} bytes asked for")
            await self._read_to(part, part.begin + size)
            if await self._timed(self._exactly(2), "a chunk has no end") != b"\r\n":
                raise AskAgain("a chunk has no end")
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
        if len(line) > _CHUNK_LINE_BYTES or not text or len(text) > 15 or text.strip(b"0123456789abcdefABCDEF"):
            raise AskAgain(f"a chunk's length is {text[:40]!r}")
        return int(text, 16)

    async def _timed(self, work: Coroutine[Any, Any, _T], late: str) -> _T:
        return await timed(work, self._options.timeout_s, late)


async def connect(host: str, port: int, context: Any, options: StorageOptions) -> Wire:
    """Open a connection; with a TLS context, check the server's certificate.

    Raises:
        AskAgain: the name is not known, nobody listens, the certificate is not good, or nothing happens in time.
    """
    import asyncio

    name = host if context is not None else None
    opening = asyncio.open_connection(host, port, ssl=context, server_hostname=name, limit=_LIMIT_BYTES)
    reader, writer = await timed(opening, options.timeout_s, f"no connection to {host}:{port}")
    return Wire(reader, writer, options)


async def timed(work: Coroutine[Any, Any, _T], limit_s: float, late: str) -> _T:
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
    except OSError as error:  # refused, reset, no route, name not found, TLS: Python's classes for all of these are OSErrors
        raise AskAgain(f"the connection failed: {error}") from None


def _loop_time() -> Callable[[], float]:
    import asyncio

    return asyncio.get_running_loop().time
