"""Objects of a web server: HTTP/1.1 with ranges, by Python's own sockets and TLS.

Not by obstore: it follows every redirect, and shows neither Retry-After nor check sums.
"""

from __future__ import annotations

import base64
from typing import Any

from penstock._contracts.storage_options import StorageOptions
from penstock._storage.parts import Part, RemoteObject
from penstock._storage.replies import Reply, check_partial, check_sums, describe_object, refuse_status
from penstock._storage.retrying import AskAgain
from penstock._storage.urls import Address, check_host, is_loopback, parse_url
from penstock._storage.wire import Wire, connect
from penstock.errors import PlanError, StorageError

__all__ = ["WebTransport"]

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = "penstock"
_MAX_REMEMBERED = 10_000


class WebTransport:
    """See `Transport`; for one scheme, host and port.

    Args:
        origin: an address there.
        options: as the user gave them.
    """

    def __init__(self, origin: Address, options: StorageOptions) -> None:
        self._origin = origin
        self._options = options
        self._idle: dict[tuple[str, str, int], list[Wire]] = {}
        self._open: dict[Wire, tuple[str, str, int]] = {}
        self._redirected: dict[str, Address] = {}
        self._headers: str | None = None
        self._context: Any = None

    async def find(self, key: str) -> RemoteObject:
        """Ask for the first byte: its answer holds the size and shows that there are ranges; HEAD shows neither to be relied on.

        Raises:
            AskAgain, CredentialsRefused, StorageError: as `fetch`.
        """
        shown = self._address(key).shown
        wire, reply = await self._ask(key, shown, "bytes=0-0", None)
        try:
            if reply.status != 416:
                refuse_status(reply, shown, None)
            found = describe_object(reply, key, shown)
            await wire.skip_body(reply)
        finally:
            self._put_back(wire)
        return found

    async def fetch(self, part: Part) -> None:
        """See `Transport`."""
        begin, found = part.begin, part.found
        # A weak tag never matches If-Match; the answer's is compared.
        match = found.etag if not found.etag.startswith("W/") else ""
        wire, reply = await self._ask(found.key, found.shown, f"bytes={begin}-{part.end - 1}", match)
        try:
            refuse_status(reply, found.shown, found)
            check_partial(reply, part)
            await wire.read_body(reply, part)
            check_sums(reply, part, begin)
        finally:
            self._put_back(wire)

    def refresh(self) -> None:
        """Ask for headers again, and at the first host where redirects lead now."""
        self._headers = None
        self._redirected.clear()

    async def close(self) -> None:
        """Close all connections."""
        for wire in self._open:
            wire.close()
        self._open.clear()
        self._idle.clear()

    async def _ask(self, key: str, shown: str, byte_range: str, match: str | None) -> tuple[Wire, Reply]:
        address = self._redirected.get(key) or self._address(key)
        for _ in range(_MAX_REDIRECTS + 1):
            wire, reply = await self._ask_one(address, byte_range, match)
            if reply.status not in _REDIRECTS:
                was_sent = address.origin != self._origin.origin
                if was_sent and reply.status in (401, 403, 404, 410) and self._redirected.pop(key, None) is not None:
                    self._drop(wire)
                    raise AskAgain(f"where {shown!r} leads to said {reply.status}")
                return wire, reply
            self._drop(wire)
            address = self._follow(address, reply, shown)
            if len(self._redirected) < _MAX_REMEMBERED and address.origin != self._origin.origin:
                self._redirected[key] = address
        self._redirected.pop(key, None)
        raise StorageError(f"{shown!r} leads on more than {_MAX_REDIRECTS} times", where=shown, fix="give the URL that it leads to")

    async def _ask_one(self, address: Address, byte_range: str, match: str | None) -> tuple[Wire, Reply]:
        request = self._request(address, byte_range, match)
        wire = self._take_idle(address) or await self._connect(address)
        try:
            return wire, await wire.ask(request)
        except AskAgain:
            self._drop(wire)
            if not wire.is_stale:
                raise
        except BaseException:
            self._drop(wire)
            raise
        # The server closed a connection that had been idle: no failure of this request. The other idle ones may be as old.
        wire = await self._connect(address)
        try:
            return wire, await wire.ask(request)
        except BaseException:
            self._drop(wire)
            raise

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

    def _take_idle(self, address: Address) -> Wire | None:
        idle = self._idle.get(address.origin, [])
        while idle:
            wire = idle.pop()
            if wire.is_usable:
                return wire
            self._drop(wire)
        return None

    async def _connect(self, address: Address) -> Wire:
        if address.scheme == "https" and self._context is None:
            import ssl

            self._context = ssl.create_default_context()
        wire = await connect(address.host, address.port, self._context if address.scheme == "https" else None, self._options)
        self._open[wire] = address.origin
        try:
            check_host(wire.peer, address.shown)
            if address.origin != self._origin.origin and is_loopback(wire.peer) and not is_loopback(self._origin.host):
                raise _refused(address.shown, "it is this machine")
        except (PlanError, StorageError):
            self._drop(wire)
            raise
        return wire

    def _put_back(self, wire: Wire) -> None:
        if wire.is_usable:
            self._idle.setdefault(self._open[wire], []).append(wire)
        else:
            self._drop(wire)

    def _drop(self, wire: Wire) -> None:
        wire.close()
        self._open.pop(wire, None)

    def _address(self, key: str) -> Address:
        origin = self._origin
        return Address(scheme=origin.scheme, host=origin.host, port=origin.port, key=key, user=origin.user)

    def _request(self, address: Address, byte_range: str, match: str | None) -> bytes:
        lines = [f"GET {address.key} HTTP/1.1", f"Host: {_host(address)}", f"Range: {byte_range}", "Accept-Encoding: identity"]
        lines += [f"User-Agent: {_AGENT}", "Accept: */*"]
        if match:
            lines.append(f"If-Match: {match}")
        if address.host == self._origin.host:  # nobody else sees what the user gave for this host
            lines.append(self._own_headers())
        return ("\r\n".join(line for line in lines if line) + "\r\n\r\n").encode("latin-1")

    def _own_headers(self) -> str:
        if self._headers is None:
            given = self._options.headers
            headers = dict(given() if callable(given) else given or {})
            if self._origin.user and not any(name.lower() == "authorization" for name in headers):
                headers["Authorization"] = f"Basic {base64.b64encode(self._origin.user.encode()).decode()}"
            self._headers = "\r\n".join(f"{_clean(name)}: {_clean(value)}" for name, value in headers.items())
        return self._headers


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return host if address.port == {"https": 443, "http": 80}.get(address.scheme) else f"{host}:{address.port}"


def _clean(text: str) -> str:
    if not isinstance(text, str) or "\r" in text or "\n" in text:
        raise PlanError("a header in StorageOptions is no text of one line", where="StorageOptions", fix="look for a newline at its end")
    return text


def _refused(shown: str, why: str) -> StorageError:
    return StorageError(
        f"{shown!r} leads somewhere else, where it may not: {why}",
        where=shown,
        fix="give the URL that it leads to; or name the host in redirect_hosts, if you trust it",
    )
