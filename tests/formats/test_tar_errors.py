"""What is wrong with a tar file is said with the member's name and what to do."""

from __future__ import annotations

import bz2
import gzip
import lzma

import numpy as np
import pytest
from formats.archives import END, header, member, pieces, sample

from penstock.errors import RecordError
from penstock.formats.tar import find_samples


def refusal(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        find_samples(iter(pieces(data)), len(data), "x.tar")
    return str(caught.value)


@pytest.mark.parametrize(("compress", "kind"), [(gzip.compress, "GZIP"), (bz2.compress, "BZIP2"), (lzma.compress, "XZ")])
def test_an_archive_that_is_compressed_as_a_whole_is_refused_with_how_to_convert_it(compress: object, kind: str) -> None:
    for count in (1, 99):
        noise = np.random.default_rng(7).bytes(100 * count)
        archive = b"".join(sample(b"%d" % number, {b"x": noise[number * 100 :][:100]}) for number in range(count))
        data = compress(archive)  # type: ignore[operator]
        assert (len(data) < 512) is (count == 1)
        text = refusal(data)
        assert f"the file is compressed with {kind} as a whole" in text
        assert "decompress it once" in text


def test_a_file_of_another_kind_is_no_tar_file() -> None:
    assert "this is no tar file: its first 512 bytes are no header" in refusal(b"\x89PNG" + bytes(1000))
    assert "there is no tar header: its check sum does not fit" in refusal(member(b"a.x") + b"text" * 200)


def test_names_in_errors_are_escaped_and_cut() -> None:
    text = refusal(header(b"\xff\x1b[2Jbad.jpg", 10_000) + END)
    assert r"member '\udcff\x1b[2Jbad.jpg'" in text
    assert "\x1b" not in text
    folder = b"n" * 99 + b"/"
    assert ("n" * 99 + "/" + "m" * 57 + "...'") in refusal(header(b"m" * 90 + b".jpg", 10_000, prefix=folder[:-1]) + END)
