from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SpecError
from penstock.kernels import mix
from penstock.kernels.checked import finish

GOLDEN_KEYS = {
    (): 16294208416658607535,
    (0,): 6791897765849424158,
    (1,): 16860738450190168606,
    (-1,): 5653759546235007592,
    (2**64 - 1,): 11917333196513764506,
    (2**64,): 12080460009552670954,
    (1, 2, 3): 5631902732087738355,
    (3, 2, 1): 9670767411627600379,
    (7, 0, 0, 0): 12645940094130641983,
}


def test_keys_are_the_same_on_every_platform_and_in_every_version() -> None:
    assert {values: mix(*values) for values in GOLDEN_KEYS} == GOLDEN_KEYS


def test_finish_is_the_published_finaliser_of_splitmix64() -> None:
    # The first output of splitmix64 seeded with 0, as its authors print it.
    assert finish(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


@given(st.lists(st.integers(-(2**200), 2**200), max_size=6))
def test_a_key_has_64_bits_whatever_the_size_of_its_values(values: list[int]) -> None:
    assert 0 <= mix(*values) < 2**64


def test_the_number_of_values_counts() -> None:
    assert len({mix(), mix(0), mix(0, 0), mix(0, 0, 0)}) == 4


def test_a_value_and_its_words_give_different_keys() -> None:
    assert mix(2**64 + 5) != mix(5, 1)
    assert mix(-1) != mix(0)


def test_numpy_integers_count_as_their_value() -> None:
    assert mix(np.int64(3), np.uint8(4), True) == mix(3, 4, 1)


@pytest.mark.parametrize("value", [1.0, "7", None, np.float32(1)])
def test_a_value_that_is_no_integer_is_an_error_that_names_its_place(value: object) -> None:
    with pytest.raises(SpecError) as caught:
        mix(1, value)  # type: ignore[arg-type]
    assert "value 1 of a key" in caught.value.what
    assert type(value).__name__ in caught.value.what
    assert "mix, argument 1 of 2" in caught.value.where
    assert "integers only" in caught.value.fix
