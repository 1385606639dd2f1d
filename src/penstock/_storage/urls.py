"""Which remote objects URLs and patterns name, and which addresses are never asked."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from penstock._contracts.storage import StorageOptions
from penstock._storage.expanding import expand
from penstock._storage.redaction import redacted
from penstock.errors import PlanError

__all__ = ["Address", "check_host", "expand_url", "is_loopback", "key_matcher", "literal_prefix", "parse_url"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCHEMES = ("s3", "gs", "https", "http")
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/?#]*/)(.*)", re.DOTALL)
_PORTS = {"https": 443, "http": 80}
_WILDCARD = re.compile(r"[*?\[]")
_NOT_HIDDEN = r"(?!\.)"
_FOLDERS = rf"(?:{_NOT_HIDDEN}[^/]+/)*"
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
_METADATA_ADDRESSES = frozenset({"100.100.100.200", "fd00:ec2::254", "168.63.129.16"})
"""Besides link-local addresses: where clouds keep credentials of the machine."""
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed URL.

    Attributes:
        scheme: "s3", "gs", "https" or "http".
        host: bucket, or name or address of the host in small letters.
        port: 0 for buckets.
        key: key or pattern in the bucket; path and query of a request, quoted.
        user: "user:password" of the URL, for `https://`.
    """

    scheme: str
    host: str
    port: int
    key: str
    user: str

    @property
    def in_bucket(self) -> bool:
        """Tell whether a store with keys is asked, and not just a web server."""
        return self.scheme in ("s3", "gs")

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port."""
        return (self.scheme, self.host, self.port)

    @property
    def shown(self) -> str:
        """Return the URL without secrets, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port not in (0, _PORTS.get(self.scheme)) else ""
        return (
            f"{self.scheme}://{host}{port}/{self.key.lstrip('/')}"
            if self.in_bucket
            else redacted(f"{self.scheme}://{host}{port}{self.key}")
        )


def parse_url(url: str, options: StorageOptions, caller: str) -> Address:
    """Take a URL apart.

    Raises:
        PlanError: a scheme that is not read, no bucket or host, an address that is never asked, a secret where it does not belong.
    """
    scheme = _SCHEME.match(url)
    kind = scheme[1].lower() if scheme else url.partition(":")[0]
    if scheme is None or kind not in _SCHEMES:
        raise _refusal(f"{_short(url)} has the scheme {kind!r}", caller, "give a path, or a URL with s3://, gs:// or https://")
    if any(ord(letter) < 33 or ord(letter) == 127 for letter in url) and kind in _PORTS:
        raise _refusal(f"{_short(url)} holds a space or control character", caller, "quote it, as in %20")
    if kind in ("s3", "gs"):
        return _bucket(url, kind, url[scheme.end() :], caller)
    return _web(url, kind, options, caller)


def expand_url(url: str, caller: str) -> list[str]:
    """Return the URLs that one with braces or `@10` in its path stands for. Host and query stay as they are.

    Raises:
        PlanError: more than a million names.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return [url]
    end = len(parts[2])
    if not url.startswith(("s3:", "gs:")):  # where a question mark is a wildcard
        end = min(place for place in (parts[2].find("?"), parts[2].find("#"), end) if place >= 0)
    return [f"{parts[1]}{path}{parts[2][end:]}" for path in expand(parts[2][:end], caller)]


def check_host(host: str, where: str) -> None:
    """Refuse link-local addresses and those where clouds keep credentials of the machine.

    Raises:
        PlanError: it is one.
    """
    if host.lower().rstrip(".") in _METADATA_NAMES or _is_metadata(host):
        raise PlanError(f"{host!r} is where clouds keep credentials, not data", where=where, fix="take it out of the list")


def is_loopback(host: str) -> bool:
    """Tell whether a name or address is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def literal_prefix(pattern: str) -> str | None:
    """Return the text before the first wildcard of a pattern; None when there is no wildcard."""
    found = _WILDCARD.search(pattern)
    return None if found is None else pattern[: found.start()]


def key_matcher(pattern: str) -> re.Pattern[str]:
    """Compile a glob pattern for keys: `*`, `?` and `[...]` do not match a slash, `**/` matches any number of folders.

    As in a shell, only a dot of the pattern matches one at the beginning of a name: other patterns find no hidden files and folders.

    Raises:
        PlanError: a range in brackets that has no letters.
    """
    parts, place = [], 0
    while place < len(pattern):
        letter, begins = pattern[place], place == 0 or pattern[place - 1] == "/"
        if begins and pattern.startswith("**/", place):
            parts.append(_FOLDERS)
            place += 3
            continue
        if begins and letter in "*?[":
            parts.append(_NOT_HIDDEN)
        end = pattern.find("]", place + 2) if letter == "[" else -1
        if begins and pattern[place:] == "**":
            parts.append(f"{_FOLDERS}{_NOT_HIDDEN}[^/]*")
            place = len(pattern)
        elif letter == "*":
            parts.append("[^/]*")
            place += 1
        elif letter == "?":
            parts.append("[^/]")
            place += 1
        elif end > 0:
            inside = re.sub(r"([\\\[&~|])", r"\\\1", pattern[place + 1 : end])
            parts.append(f"(?!/)[{'^' + inside[1:] if inside.startswith('!') else inside.replace('^', chr(92) + '^', 1)}]")
            place = end + 1
        else:
            parts.append(re.escape(letter))
            place += 1
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise PlanError(
            f"the pattern {pattern!r} cannot be read: {error.msg}", where=repr(pattern), fix="write ranges from low to high, as in [a-z]"
        ) from error


def _bucket(url: str, scheme: str, rest: str, caller: str) -> Address:
    bucket, _, key = rest.partition("/")
    if "@" in bucket or (":" in bucket and "@" in rest):
        raise _refusal(
            f"{_short(url)} holds credentials",
            caller,
            "give them in the options, or where the store's own tools look for them",
        )
    if not bucket or not key:
        raise _refusal(
            f"{_short(url)} names no {'key' if bucket else 'bucket'}", caller, f"write {scheme}://bucket/key or {scheme}://bucket/folder/*"
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise _refusal(f"{bucket!r} is no name of a bucket", caller, f"write {scheme}://bucket/key")
    return Address(scheme=scheme, host=bucket, port=0, key=key, user="")


def _web(url: str, scheme: str, options: StorageOptions, caller: str) -> Address:
    from urllib.parse import quote, unquote, urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[scheme]
    except ValueError:
        raise _refusal(f"{_short(url)} is no URL", caller, "write https://host/path") from None
    if not host:
        raise _refusal(f"{_short(url)} names no host", caller, "write https://host/path")
    if "*" in parts.path:
        raise _refusal(
            f"{_short(url)} is a pattern", caller, "web servers have no listing: give every URL, or numbers as in part-{000..099}"
        )
    check_host(host, caller)
    if scheme == "http" and not options.allow_http and not is_loopback(host):
        raise _refusal(f"{_short(url)} is not encrypted", caller, "use https://, or RemoteFiles(url, {'allow_http': True})")
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username is not None else ""
    query = f"?{quote(parts.query, safe='=&%:/?+,;@!$*()~[]')}" if parts.query else ""
    return Address(scheme=scheme, host=host, port=port, key=quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + query, user=user)


def _is_metadata(host: str) -> bool:
    try:
        address: Any = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _odd_ipv4(host)
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_link_local or address.is_unspecified or address.is_multicast or str(address) in _METADATA_ADDRESSES


def _odd_ipv4(host: str) -> bool:
    """Tell whether it is an address in one of the spellings that only the C library reads, as 0xA9FEA9FE or 169.16689662."""
    return re.fullmatch(r"(?:0[xX][0-9a-fA-F]+|\d+)(?:\.(?:0[xX][0-9a-fA-F]+|\d+)){0,3}", host) is not None


def _refusal(what: str, caller: str, fix: str) -> PlanError:
    return PlanError(what, where=caller, fix=fix)


def _short(url: str) -> str:
    text = redacted(url)
    return repr(text if len(text) <= _SHOWN_BYTES else text[:_SHOWN_BYTES] + "...")
