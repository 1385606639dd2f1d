"""An object that several processes read: pickled once, its arrays copied once."""

from __future__ import annotations

import os

import numpy as np
import pytest

from penstock._processes.shared_pickle import pickle_apart
from penstock.errors import PlanError


def test_it_is_read_as_often_as_wanted_and_what_one_reader_writes_no_other_sees() -> None:
    value = {"a": np.arange(10_000), "text": "x" * 100, "f": np.asfortranarray(np.ones((3, 5)))}
    where, descriptor = pickle_apart(value).write()
    first, second = where.load(os.dup(descriptor)), where.load(os.dup(descriptor))
    first["a"][:] = 0
    assert np.array_equal(second["a"], value["a"])
    assert second["text"] == value["text"]
    assert np.array_equal(second["f"], value["f"])
    os.close(descriptor)


def test_it_tells_whether_something_is_looked_up_in_the_program() -> None:
    assert not pickle_apart({"a": np.arange(3)}).mentions_program
    assert pickle_apart("__main__").mentions_program


@pytest.mark.parametrize("value", [np.zeros(1000), ["some text", *range(1000)]], ids=["an array", "a list"])
def test_more_than_the_limit_is_refused(value: object) -> None:
    with pytest.raises(PlanError, match="too much memory") as refusal:
        pickle_apart(value, most_bytes=500)
    assert refusal.value.fix == 'give executor="processes" or "threads"'
    where, descriptor = pickle_apart(value, most_bytes=100_000).write()
    os.close(descriptor)
    assert where.num_bytes > 500


def test_arrays_are_not_copied_before_it_is_written() -> None:
    array = np.arange(1000)
    found = pickle_apart({"a": array})
    array[0] = 7
    where, descriptor = found.write()
    assert where.load(descriptor)["a"][0] == 7
