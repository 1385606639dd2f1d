"""Texts in messages: without secrets, quoted, and cut when they are long; numbers of bytes in words."""

from __future__ import annotations

import re
import sys

_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()
_SHOWN_CHARS = 160
_URL = re.compile(r"\b([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s?#'\"<>]*)(\?[^\s#'\"<>]*)?(?:#[^\s'\"<>]*)?")
_HOST_AND_PORT = re.compile(r"[^/:@]*:\d{1,5}/")
_FIELD = re.compile(
    r"(?i)((?:access|secret|session|security|account|api)[-_ ]?(?:access)?[-_ ]?(?:key|token)(?:[-_ ]?id)?"
    r"|(?:proxy-)?authorization|password|passwd|credential|signature|sig|token|x-amz-[a-z0-9-]+|x-goog-[a-z0-9-]+|awsaccesskeyid)"
    r"(['\"]?\s*(?:[=:>]|%3D)\s*['\"]?)((?:Bearer|Basic|AWS4-HMAC-SHA256)\s+)?[^\s'\"<>&,;]+"
)
_SCHEME_TOKEN = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA|AROA)[A-Z0-9]{12,}\b")


def redacted(text: str) -> str:
    """Return the text without user names and passwords of URLs, query strings, tokens and keys.

    Texts of a store go into messages only through here: they may repeat the signed request.
    """
    text = _URL.sub(_plain, text)
    text = _FIELD.sub(lambda found: f"{found[1]}{found[2]}[removed]", text)
    text = _SCHEME_TOKEN.sub(r"\1 [removed]", text)
    return _KEY_ID.sub("[removed]", text)


def _plain(found: re.Match[str]) -> str:
    scheme, rest, query = found[1], found[2], found[3]
    head, at, tail = rest.rpartition("@")
    # A secret key may hold slashes: with a colon in front, all up to the last `@` is one, except behind a host with a port.
    if at and ("/" not in head or (":" in head and not _HOST_AND_PORT.match(head))):
        rest = f"[removed]@{tail}"
    return f"{scheme}{rest}{'?[removed]' if query else ''}"


def shown(text: str | bytes) -> str:
    """Quote a path or line for a message: control characters and broken UTF-8 escaped, cut when it is long."""
    if isinstance(text, bytes):
        text = text.decode(_ENCODING, _ERRORS)
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "...")


_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size_words(num_bytes: int) -> str:
    """Return a size in the unit that leaves one to three digits before the point, in powers of 1000."""
    size, unit = float(num_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{num_bytes} bytes" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"
