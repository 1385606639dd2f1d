"""The first bytes of a file, by which other formats are known, so that none of them is read as text or as raw numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["HEAD_BYTES", "Foreign", "foreign"]

HEAD_BYTES = 16
"""First bytes of a file that tell all of it."""


class Foreign(NamedTuple):
    """Another format than the one that a file is read as.

    Attributes:
        kind: its name.
        fix: what to do.
        mark: the first bytes.
        behind: pattern of the bytes behind it: numbers begin with both by a chance of 1 in 2**32 at most. None: nothing tells so much.
    """

    kind: str
    fix: str
    mark: bytes
    behind: bytes | None


_GZIP = "unpack it first (gunzip): inside a compressed file nothing can be found without all before it"
_ZSTD = rb"[\x00-\x07\x20-\x27\x40-\x47\x60-\x67\x80-\x87\xa0-\xa7\xc0-\xc7\xe0-\xe7]"
_ZIP = "unpack it first (unzip), which makes .npy files of an .npz"
_UTF_16 = "save it as UTF-8: iconv -f UTF-16 -t UTF-8"
_KNOWN = (
    Foreign("gzip", _GZIP, b"\x1f\x8b", rb"\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]"),
    Foreign("zstd", "unpack it first (unzstd)", b"\x28\xb5\x2f\xfd", _ZSTD),
    Foreign("bzip2", "unpack it first (bunzip2)", b"BZh", rb"[1-9](1AY&SY|\x17rE8P\x90)"),
    Foreign("xz", "unpack it first (unxz)", b"\xfd7zXZ", rb"\x00\x00"),
    Foreign("a zip archive", _ZIP, b"PK\x03\x04", rb"[\x00-\x3f]\x00.[\x00\x08][\x00-\x63]\x00"),
    Foreign("UTF-16", _UTF_16, b"\xff\xfe", None),
    Foreign("UTF-16", _UTF_16, b"\xfe\xff", None),
    Foreign("Parquet", "use read_parquet", b"PAR1", rb"\x15[\x00-\x06]\x15"),
    Foreign("an .npy file", "use read_tokens, or from_arrays(np.load(path))", b"\x93NUMPY", b""),
)


def foreign(head: bytes, *, surely: bool = False) -> Foreign | None:
    """Return the format that the first bytes of a file tell; None where they tell none.

    Args:
        head: the first `HEAD_BYTES` bytes, or fewer.
        surely: the mark alone is not enough, as in a file of numbers, which may begin with anything.
    """
    for one in _KNOWN:
        if head.startswith(one.mark) and (not surely or _goes_on(one, head)):
            return one
    return None


def _goes_on(one: Foreign, head: bytes) -> bool:
    return one.behind is not None and re.match(one.behind, head[len(one.mark) :], re.DOTALL) is not None
