"""What is said of a frame that is not one."""

from __future__ import annotations

from penstock.errors import RecordError
from penstock.formats.compression import looks_like
from penstock.kernels.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, UNKNOWN, FrameStatus, crc32c, masked

__all__ = ["frame_error"]


def frame_error(
    status: FrameStatus, data: bytes | memoryview, *, name: str, record: int, offset: int, left: int = UNKNOWN, limit: int = UNKNOWN
) -> RecordError:
    """Return the error for a frame that a kernel found to be bad.

    Args:
        status: what the kernel said.
        data: bytes of the file from the frame on: at least all of the frame when its data are bad, else its header.
        name: of the file.
        record: number of the record in the file, -1 when it is not known.
        offset: where the frame begins, in bytes (of the decompressed file).
        left: bytes of the file from the frame on.
        limit: what `max_record_bytes` was.
    """
    which = f"record {record}" if record >= 0 else "the record"
    what, fix = _words(status, bytes(data[:FRAME_BYTES]), data, left, limit)
    return RecordError(f"{which} of {name!r} at offset {offset}: {what}", where=f"{name!r}, {which}, offset {offset}", fix=fix or _FIX)


_FIX = "get another copy of the file or write it again; on_error=ps.Skip() leaves the record out and goes on"


def _words(status: FrameStatus, head: bytes, data: bytes | memoryview, left: int, limit: int) -> tuple[str, str]:
    length = int.from_bytes(head[:8], "little")
    match status:
        case FrameStatus.CUT if len(head) < HEADER_BYTES:
            return f"the file is truncated: {len(head)} bytes are left, and a header has {HEADER_BYTES}", ""
        case FrameStatus.CUT:
            return f"the file is truncated: the record says {length} bytes, and {max(0, left - FRAME_BYTES)} are left for them", ""
        case FrameStatus.LIMIT:
            return (
                f"the record says {length} bytes, over max_record_bytes={limit}",
                "give a larger max_record_bytes if such records are meant",
            )
        case FrameStatus.LENGTH_CRC:
            return _bad_header(head, length)
        case FrameStatus.DATA_CRC:
            body = bytes(data[HEADER_BYTES : HEADER_BYTES + length])
            stored = int.from_bytes(data[HEADER_BYTES + length : HEADER_BYTES + length + FOOTER_BYTES], "little")
            computed = masked(crc32c(body))
            return f"the {length} bytes of its data have the masked CRC32C 0x{computed:08x}, and the file says 0x{stored:08x}", ""
        case _:
            return f"its length is {length}, and the index says another", "build the index again"


def _bad_header(head: bytes, length: int) -> tuple[str, str]:
    kind = looks_like(head)
    if kind == "GZIP":
        return f"its first bytes {head[:4].hex(' ')} are no length: this looks like GZIP", 'give compression="GZIP" or "auto"'
    computed, stored = masked(crc32c(head[:8])), int.from_bytes(head[8:12], "little")
    what = f"its length {length} has the masked CRC32C 0x{computed:08x}, and the file says 0x{stored:08x}"
    if not any(head[:HEADER_BYTES]):
        return f"{what}; zeros stand here, as in a file whose end was never written", ""
    if kind == "ZLIB":
        return f"{what}; it may be a ZLIB stream", 'give compression="ZLIB" if it was written so'
    return what, ""
