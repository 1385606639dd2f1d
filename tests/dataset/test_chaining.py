from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from dataset.small import numbers

from penstock.errors import PlanError


def test_a_pickle_has_the_plan_and_not_what_looking_left_behind() -> None:
    ds, fresh = numbers(40).map(abs).batch(4), numbers(40).map(abs).batch(4)
    assert ds[2].tolist() == [8, 9, 10, 11]
    assert len(list(ds)) == 10
    assert len(pickle.dumps(ds)) == len(pickle.dumps(fresh))
    assert [batch.tolist() for batch in pickle.loads(pickle.dumps(ds))] == [batch.tolist() for batch in fresh]


@pytest.mark.parametrize("folder", [None, "kept"])
def test_a_cache_is_not_pickled_and_the_error_says_what_to_do(tmp_path: Path, folder: str | None) -> None:
    ds = numbers(3).cache(folder and tmp_path / folder)
    with pytest.raises(PlanError) as refusal:
        pickle.dumps(ds.batch(2))
    assert refusal.value.what == "what a cache keeps is counted and locked in this process, so it cannot be pickled or copied"
    assert refusal.value.where == "pickle of a Dataset with cache()"
    assert refusal.value.fix.startswith("pickle the dataset before cache(), and call cache() on it in the other process")


def test_a_copy_of_what_never_changes_is_itself() -> None:
    ds = numbers(3).cache()
    assert copy.copy(ds) is ds
