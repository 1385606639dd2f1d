from __future__ import annotations

import numpy as np
import pytest

from penstock._storage.parts import KeptPart, Part, RemoteObject

FOUND = RemoteObject(key="/key", shown="https://example.org/key", size=100, etag='"1"', modified="today")
DATA = bytes(range(50))


def parts() -> list[Part]:
    return [Part(FOUND, 20, memoryview(bytearray(50))), KeptPart(FOUND, 20, 50)]


@pytest.mark.parametrize("part", parts())
def test_bytes_that_come_move_the_beginning(part: Part) -> None:
    assert (part.begin, part.end, part.size) == (20, 70, 50)
    part.add(DATA[:30])
    assert (part.begin, part.end, part.num_got) == (50, 70, 30)
    assert part.shown == "bytes 50 to 69 of 'https://example.org/key'"
    part.add(DATA[30:])
    assert bytes(part.body(20)) == DATA
    assert bytes(part.body(45)) == DATA[25:]


@pytest.mark.parametrize("part", parts())
def test_what_a_try_brought_that_was_given_up_is_written_over(part: Part) -> None:
    part.add(DATA[:10])
    part.add(b"x" * 15)
    part.add(b"y" * 5)
    part.num_got = 10
    part.add(DATA[10:50])
    assert bytes(part.body(20)) == DATA


def test_what_was_kept_is_copied_from_any_place() -> None:
    part = KeptPart(FOUND, 20, 50)
    for begin in range(0, 50, 7):
        part.add(DATA[begin : begin + 7])
    for begin in range(20, 70, 3):
        for end in range(begin, 70, 5):
            target = np.zeros(end - begin, np.uint8)
            part.copy(begin, target)
            assert target.tobytes() == DATA[begin - 20 : end - 20]
