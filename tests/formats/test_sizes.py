from __future__ import annotations

import pytest

from penstock._system.text import size_words


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_400, "999 kB"),
        (999_600, "1 MB"),
        (1 << 30, "1.07 GB"),
        (10**16, "1e+04 TB"),
    ],
)
def test_a_size_is_said_in_its_unit(num_bytes: int, words: str) -> None:
    assert size_words(num_bytes) == words
