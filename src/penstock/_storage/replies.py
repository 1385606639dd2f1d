"""What an HTTP answer says, and whether it is the answer to what was asked."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from penstock._storage.parts import Part, RemoteObject
from penstock._storage.retrying import AskAgain, CredentialsRefused, changed, gone
from penstock.errors import StorageError

__all__ = ["Reply", "check_partial", "check_sums", "describe_object", "parse_head", "refuse_status", "retry_after_s"]

_RANGE = re.compile(r"bytes\s+(?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)
_RETRIED = frozenset({408, 421, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524})
_SHOWN = 80


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
        AskAgain: they are none.
    """
    lines = data.decode("latin-1").split("\r\n")
    first = re.fullmatch(r"(HTTP/1\.[01]) ([1-5]\d\d)(?: [^\r\n]*)?", lines[0])
    if first is None:
        raise AskAgain(f"the answer begins with {lines[0][:_SHOWN]!r}, which is no HTTP")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise AskAgain(f"the answer has the header line {line[:_SHOWN]!r}")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Reply(version=first[1], status=int(first[2]), headers=headers)


def refuse_status(reply: Reply, shown: str, found: RemoteObject | None) -> None:
    """Raise what a status that is no success and no redirect means.

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
    if status in _RETRIED:
        raise AskAgain(reason, retry_after_s(reply))
    if status in (401, 403):
        raise CredentialsRefused(reason)
    if status in (404, 410):
        raise gone(shown, reason)
    if status in (412, 416) and found is not None:
        raise changed(found, reply.headers.get("etag") or reply.headers.get("content-range") or reason)
    raise StorageError(f"{shown!r} cannot be read: {reason}", where=shown, fix="check the URL")


def retry_after_s(reply: Reply) -> float:
    """Return how long the server wants to be left alone; 0 when it does not say, or not in a way that can be read."""
    text = reply.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    if not text:
        return 0.0
    import time
    from email.utils import mktime_tz, parsedate_tz

    when = parsedate_tz(text)
    return 0.0 if when is None else max(0.0, mktime_tz(when) - time.time())


def check_partial(reply: Reply, part: Part) -> None:
    """Check that an answer is the range that was asked for, of the object that was found.

    Raises:
        AskAgain: it is something else: all of the object, another range, coded bytes, a page of somebody else.
        ObjectChanged: it is of another object.
    """
    headers, found = reply.headers, part.found
    if reply.status != 206:
        raise AskAgain(f"the server said {reply.status} {headers.get('content-type', '')!r} to a range, not 206")
    _check_same(reply, found)
    if headers.get("content-encoding", "identity").lower() not in ("identity", "", "aws-chunked"):
        raise AskAgain(f"the server sent Content-Encoding {headers['content-encoding'][:_SHOWN]!r}, which nobody asked for")
    given = _RANGE.fullmatch(headers.get("content-range", "").strip())
    if given is None or given[1] is None or (int(given[1]), int(given[2])) != (part.begin, part.end - 1):
        raise AskAgain(f"the server sent {headers.get('content-range', 'no range')[:_SHOWN]!r} for bytes {part.begin}-{part.end - 1}")
    if given[3] not in ("*", str(found.size)):
        raise changed(found, f"{given[3]} bytes") if not found.version else AskAgain(f"the server says {given[3]} bytes of {found.size}")
    if reply.length not in (None, part.end - part.begin):
        raise AskAgain(f"the server announces {reply.length} bytes for a range of {part.end - part.begin}")


def _check_same(reply: Reply, found: RemoteObject) -> None:
    etag, modified = reply.headers.get("etag", ""), reply.headers.get("last-modified", "")
    # A part has the validators that the whole would have (RFC 9110, 15.3.7). Without them nothing shows that it is of the same object.
    if found.version and not (found.etag and etag) and not (found.modified and modified):
        raise AskAgain("the server sent neither the ETag nor the Last-Modified that the object had")
    if found.etag and etag and etag != found.etag:
        raise changed(found, etag)
    if not (found.etag and etag) and found.modified and modified and modified != found.modified:
        raise changed(found, modified)


def describe_object(reply: Reply, key: str, shown: str) -> RemoteObject:
    """Read size and version from the answer to a request for the first byte.

    Raises:
        AskAgain: the server does not do ranges, or not now.
    """
    given = _RANGE.fullmatch(reply.headers.get("content-range", "").strip())
    is_empty = (reply.status == 416 and given is not None and given[3] == "0") or (reply.status == 200 and reply.length == 0)
    if not is_empty and (reply.status != 206 or given is None or given[3] == "*" or given[1] != "0"):
        raise AskAgain(f"the server said {reply.status} {reply.headers.get('content-range', 'without a range')[:_SHOWN]!r} to a range")
    size = 0 if is_empty or given is None else int(given[3])
    headers = reply.headers
    return RemoteObject(key=key, shown=shown, size=size, etag=headers.get("etag", ""), modified=headers.get("last-modified", ""))


def check_sums(reply: Reply, part: Part, begin: int) -> None:
    """Compare the check sums that the server gave with the bytes that came: of the answer, or of the whole object if that is what came.

    Raises:
        AskAgain: one differs; the bytes count as not there.
    """
    given = "content-digest" in reply.headers or (begin == 0 and part.end == part.found.size)
    body = part.body(begin) if given else memoryview(b"")
    sums = [(f"Content-Digest {name}", value) for name, value in _digests(reply.headers.get("content-digest", ""))]
    if begin == 0 and part.end == part.found.size:
        headers = reply.headers
        sums += [("Content-MD5 md5", headers.get("content-md5", ""))]
        sums += [(f"{name} {name.rpartition('-')[2]}", value) for name, value in headers.items() if name.startswith("x-amz-checksum-")]
        sums += [(f"x-goog-hash {name}", value) for name, value in _pairs(headers.get("x-goog-hash", ""))]
    for name, value in sums:
        computed = _sum(name.rpartition(" ")[2], body) if value else None
        if computed is not None and computed != value:
            part.num_got = begin - part.start
            raise AskAgain(f"the bytes do not have the check sum {name.partition(' ')[0]} that the server gave")


def _sum(kind: str, body: memoryview) -> str | None:
    kind = kind.replace("-", "").lower()
    if kind == "crc32":
        return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    if kind in ("md5", "sha1", "sha256", "sha512"):
        return base64.b64encode(hashlib.new(kind, body, usedforsecurity=False).digest()).decode()
    return None


def _digests(text: str) -> list[tuple[str, str]]:
    return [(name, value.strip(":")) for name, value in _pairs(text)]


def _pairs(text: str) -> list[tuple[str, str]]:
    found = (item.strip().partition("=") for item in text.split(",") if "=" in item)
    return [(name.strip(), value.strip()) for name, _, value in found]
