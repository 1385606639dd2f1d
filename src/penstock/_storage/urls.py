"""Which remote objects URLs and patterns name, which addresses are never asked, and how paths and URLs are shown in messages.

Names of many shards may be written as one: `train-{000000..000146}.tar`, `train@10`; nothing is looked at, and no shell is asked. Texts in
messages are without secrets, quoted, and cut when they are long.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock._contracts.storage import StorageOptions
from penstock._system.text import redacted, shown
from penstock.errors import PlanError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCHEMES = ("s3", "gs", "https", "http")
_STARTS = tuple(f"{scheme}://" for scheme in _SCHEMES)
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/?#]*/)(.*)", re.DOTALL)
_PORTS = {"https": 443, "http": 80}
_WILDCARD = re.compile(r"[*?\[]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NOT_HIDDEN = r"(?!\.)"
_FOLDERS = rf"(?:{_NOT_HIDDEN}[^/]+/)*"
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
_METADATA_ADDRESSES = frozenset({"100.100.100.200", "fd00:ec2::254", "168.63.129.16"})
"""Besides link-local addresses: where clouds keep credentials of the machine."""


class Address(NamedTuple):
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
        return f"{self.scheme}://{host}/{self.key}" if self.in_bucket else redacted(f"{self.scheme}://{host}{port}{self.key}")


def is_url(text: str) -> bool:
    """Tell whether a path of a list is a URL that can be read."""
    return text[:8].lower().startswith(_STARTS)


def quoted(path: str) -> str:
    """Quote the path of a URL, such as spaces and `#`; what is quoted already stays."""
    from urllib.parse import quote

    return quote(path, safe="/%:@!$&'()*+,;=~")


def parse_url(url: str, options: StorageOptions, caller: str) -> Address:
    """Take a URL apart.

    Raises:
        PlanError: a scheme that is not read, no bucket or host, an address that is never asked, a secret where it does not belong.
    """
    scheme = _SCHEME.match(url)
    kind = scheme[1].lower() if scheme else url.partition(":")[0]
    if scheme is None or kind not in _SCHEMES:
        raise _refusal(url, f"has the scheme {kind!r}", caller, "give a path, or a URL with s3://, gs:// or https://")
    if any(ord(letter) < 33 or ord(letter) == 127 for letter in url) and kind in _PORTS:
        raise _refusal(url, "holds a space or control character", caller, "quote it, as in %20")
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


def is_readable(key: str) -> bool:
    """Tell whether obstore asks for a key, or lists what a pattern means, as it is written.

    It takes a slash off both ends, and refuses empty parts, `.`, `..` and control characters.
    """
    return not _CONTROL.search(key) and not {"", ".", ".."}.intersection(key.split("/"))


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
            url,
            "holds credentials",
            caller,
            "give them in the options, or where the store's own tools look for them",
        )
    if not bucket or not key:
        raise _refusal(
            url, f"names no {'key' if bucket else 'bucket'}", caller, f"write {scheme}://bucket/key or {scheme}://bucket/folder/*"
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise _refusal(url, f"holds {bucket!r}, which is no name of a bucket", caller, f"write {scheme}://bucket/key")
    return Address(scheme=scheme, host=bucket, port=0, key=key, user="")


def _web(url: str, scheme: str, options: StorageOptions, caller: str) -> Address:
    from urllib.parse import quote, unquote, urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[scheme]
    except ValueError:
        raise _refusal(url, "is no URL", caller, "write https://host/path") from None
    if not host:
        raise _refusal(url, "names no host", caller, "write https://host/path")
    if "*" in parts.path:
        raise _refusal(url, "is a pattern", caller, "web servers have no listing: give every URL, or numbers as in part-{000..099}")
    check_host(host, caller)
    if scheme == "http" and not options.allow_http and not is_loopback(host):
        raise _refusal(url, "is not encrypted", caller, "use https://, or RemoteFiles(url, {'allow_http': True})")
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username is not None else ""
    query = f"?{quote(parts.query, safe='=&%:/?+,;@!$*()~[]')}" if parts.query else ""
    return Address(scheme=scheme, host=host, port=port, key=quoted(parts.path or "/") + query, user=user)


def _is_metadata(host: str) -> bool:
    try:
        address: Any = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # A spelling that only the C library reads, as 0xA9FEA9FE or 169.16689662.
        return re.fullmatch(r"(?:0[xX][0-9a-fA-F]+|\d+)(?:\.(?:0[xX][0-9a-fA-F]+|\d+)){0,3}", host) is not None
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_link_local or address.is_unspecified or address.is_multicast or str(address) in _METADATA_ADDRESSES


def _refusal(url: str, what: str, caller: str, fix: str) -> PlanError:
    return PlanError(f"{shown(redacted(url))} {what}", where=caller, fix=fix)


MOST_NAMES = 1_000_000
"""That one pattern may stand for."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(\d{1,18}))?")
_SHARDED = re.compile(r"(.+)@(\d{1,18}|\*)")
_SHARD = re.compile(r"(.*-)(\d+)(-of-)(\d+)(.*)", re.DOTALL)
_COMMANDS = ("pipe:", "file:")


def expand(pattern: str, caller: str) -> list[str]:
    """Return the names or globs that a pattern stands for.

    `{a,b}` is one of the words, `{000..146}` one of the numbers (both ends included, with as many digits as the longer end if one of them
    begins with 0; `{0..9..3}` in steps); other braces stay as they are. `NAME@10` is NAME-00000-of-00010 to NAME-00009-of-00010, and
    `NAME@*` a glob for any number of them.

    Raises:
        PlanError: "pipe:" or "file:", which other libraries run as a command or open as a URL; or more than a million names.
    """
    if pattern.lower().startswith(_COMMANDS):
        raise PlanError(
            f"{shown(pattern)} begins with {pattern[:5]!r}, which is never run or opened",
            where=caller,
            fix=f"give the path itself; for a file whose name begins so, './{pattern[:5]}...'",
        )
    parts: list[tuple[int, Iterable[str]]] = []  # how many words, and which
    place = 0
    for match in _BRACES.finditer(pattern):
        choices = _choices(match[1])
        if choices is not None:
            parts += [(1, [pattern[place : match.start()]]), choices]
            place = match.end()
    parts.append((1, [pattern[place:]]))
    _limit(math.prod(count for count, _ in parts), pattern, caller)
    names: list[str] = []
    for words in itertools.product(*(words for _, words in parts)):
        names += _shards("".join(words), caller)
        _limit(len(names), pattern, caller)  # `{0..999}@99999`: neither alone is too many
    return names


def _choices(inside: str) -> tuple[int, Iterable[str]] | None:
    match = _RANGE.fullmatch(inside)
    if match is None:
        words = inside.split(",")
        return (len(words), words) if len(words) > 1 else None
    begin, end, step = int(match[1]), int(match[2]), max(1, int(match[3] or 1))
    numbers = range(begin, end + 1, step) if begin <= end else range(begin, end - 1, -step)
    is_padded = any(re.match("-?0.", number) for number in match.group(1, 2))
    width = max(map(len, match.group(1, 2))) if is_padded else 0
    return len(numbers), (str(number).zfill(width) for number in numbers)


def _shards(name: str, caller: str) -> list[str]:
    match = _SHARDED.fullmatch(name)
    if match is None:
        return [name]
    if match[2] == "*":
        return [f"{match[1]}-*-of-*"]
    count = int(match[2])
    _limit(count, name, caller)
    if count == 0:
        raise PlanError(f"{shown(name)} names no shard", where=caller, fix="give the number of shards behind the @")
    return [f"{match[1]}-{number:05d}-of-{count:05d}" for number in range(count)]


def _limit(count: int, pattern: str, caller: str) -> None:
    if count > MOST_NAMES:
        raise PlanError(
            f"{shown(pattern)} stands for {count} names or more, {MOST_NAMES} at most", where=caller, fix="check its braces or number"
        )


def missing_shards(names: list[str]) -> Iterator[str]:
    """Return the names that are lacking where names are those of shards, "-00003-of-00010": at most the first of each set."""
    sets: dict[tuple[str, int, str, str], set[int]] = {}
    for name in names:
        match = _SHARD.fullmatch(name)
        if match:
            sets.setdefault((match[1], len(match[2]), match[4], match[5]), set()).add(int(match[2]))
    for (before, width, count, after), found in sets.items():
        number = next((number for number in range(len(found) + 1) if number not in found), len(found))
        if number < int(count):
            yield f"{before}{number:0{width}d}-of-{count}{after}"
