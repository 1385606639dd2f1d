from __future__ import annotations

import pytest
from formats.tfrecords import header, tfrecord

from penstock.formats.tfrecord import frame_error
from penstock.kernels.framing import FrameStatus

GOOD = tfrecord([b"abc"])
WRONG = GOOD[:12] + b"abd" + GOOD[15:]


@pytest.mark.parametrize(
    ("status", "data", "left", "words"),
    [
        (FrameStatus.CUT, GOOD[:5], 5, "the file is truncated: 5 bytes are left, and a header has 12"),
        (FrameStatus.CUT, GOOD[:14], 14, "the file is truncated: the record says 3 bytes, and 0 are left for them"),
        (FrameStatus.LIMIT, GOOD, 19, "the record says 3 bytes, over max_record_bytes=2"),
        (FrameStatus.DATA_CRC, WRONG, 19, "the 3 bytes of its data have the masked CRC32C 0x593cafda, and the file says 0x21f1576e"),
        (FrameStatus.OTHER_LENGTH, GOOD, 25, "it says 3 bytes, and 9 lie between its header and what follows"),
        (FrameStatus.LENGTH_CRC, bytes(16), 16, "zeros stand here, as in a file whose end was never written"),
        (FrameStatus.LENGTH_CRC, b"\x1f\x8b\x08\0" + bytes(20), 24, "its first bytes 1f 8b 08 00 are no length: this looks like GZIP"),
        (FrameStatus.CUT, b"\x1f\x8b\x08", 3, "its first bytes 1f 8b 08 are no length: this looks like GZIP"),
        (FrameStatus.LENGTH_CRC, b"\x78\x9c" + bytes(20), 22, "; it may be a ZLIB stream"),
        (FrameStatus.LENGTH_CRC, header(7)[:11] + b"\0", 12, "its length 7 has the masked CRC32C 0x"),
    ],
)
def test_the_words_name_record_offset_and_values(status: FrameStatus, data: bytes, left: int, words: str) -> None:
    error = frame_error(status, data, name="f", record=7, offset=123, left=left, limit=2)
    assert error.what.startswith("record 7 of 'f' at offset 123: ")
    assert words in error.what
    assert error.where == "'f', record 7, offset 123"
    assert error.fix


def test_a_record_without_a_number_is_the_record() -> None:
    error = frame_error(FrameStatus.DATA_CRC, WRONG, name="f", record=-1, offset=0)
    assert error.what.startswith("the record of 'f' at offset 0: the 3 bytes of its data")
    assert "on_error=ps.Skip()" in error.fix
    assert error.where == "'f', the record, offset 0"
