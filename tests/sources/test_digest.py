from __future__ import annotations

import numpy as np
import pytest

from penstock.sources.paths import crc_of_array, crc_of_value, spread


def test_spread_takes_first_and_last_and_never_more_than_the_limit() -> None:
    assert spread(0, 4) == []
    assert spread(3, 4) == [0, 1, 2]
    assert spread(10**12, 4) == [0, (10**12 - 1) // 3, 2 * (10**12 - 1) // 3, 10**12 - 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        ("a", b"a"),
        ("a", "b"),
        ([1, 2], (1, 2)),
        ({"x": 1}, {"y": 1}),
        ({"x": [1, {"y": b"p"}]}, {"x": [1, {"y": b"q"}]}),
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3, np.int32), np.zeros(3, np.uint32)),
        (np.array([1, "a"], object), np.array([1, "b"], object)),
        (b"x" * 5000, b"x" * 5001),
    ],
)
def test_values_that_differ_have_another_check_sum(one: object, other: object) -> None:
    assert crc_of_value(one) != crc_of_value(other)
    assert crc_of_value(one) == crc_of_value(one)


def test_an_unknown_object_counts_by_its_type_alone_and_never_by_its_address() -> None:
    class Thing:
        pass

    assert crc_of_value([Thing(), 1]) == crc_of_value([Thing(), 1])
    assert crc_of_value(Thing()) != crc_of_value(None)


def test_a_list_inside_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert isinstance(crc_of_value(loop), int)


def test_only_the_first_bytes_of_a_large_array_count() -> None:
    one = np.zeros(10_000, np.uint8)
    other = one.copy()
    other[5000] = 1
    assert crc_of_array(one, 0, 4096) == crc_of_array(other, 0, 4096)
    assert crc_of_array(one, 0, 8192) != crc_of_array(other, 0, 8192)


def test_a_strided_array_has_the_check_sum_of_its_copy() -> None:
    grid = np.arange(600).reshape(20, 30)
    assert crc_of_array(grid.T, 0, 512) == crc_of_array(grid.T.copy(), 0, 512)
