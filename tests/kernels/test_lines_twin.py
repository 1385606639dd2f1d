"""The twin of the line scanner by hand-made cases; `test_lines.py` compares it with the C library."""

from __future__ import annotations

import numpy as np

from penstock.kernels import lines_twin


def test_lines_and_records_of_one_text() -> None:
    data, ends = np.frombuffer(b'a,"b\nc"\nd\n', np.uint8), np.empty(5, np.int64)
    assert lines_twin.find_lines(data, 10, ends) == (3, 10)
    assert ends[:3].tolist() == [15, 18, 20]
    assert lines_twin.find_records(data, 0, ord(","), ord('"'), lines_twin.BEFORE, ends) == (2, 10, lines_twin.BEFORE)
    assert ends[:2].tolist() == [8, 10]


def test_what_finds_no_room_is_left_for_the_next_call() -> None:
    data, ends = np.frombuffer(b"a\nb\nc", np.uint8), np.empty(1, np.int64)
    assert lines_twin.find_lines(data, 0, ends) == (1, 2)
    assert lines_twin.find_records(data, 0, ord(","), ord('"'), lines_twin.PLAIN, ends) == (1, 2, lines_twin.BEFORE)
    assert lines_twin.find_lines(data, 0, ends[:0]) == (0, 0)
