"""What a policy leaves out is told while the feed runs: a warning at the first, a count at the end; texts that stay as they are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.observe.losses import texts_in


def odd(number: int) -> int:
    if number % 5 == 0:
        raise ValueError(f"{number} is odd\nand long")
    return number


def told(ds: ps.Dataset, epochs: int, **options: Any) -> tuple[list[str], list[str]]:
    """Return the warnings of a feed, and the notices of what was lost."""
    with warnings.catch_warnings(record=True) as caught, ds.feed(**options) as feed:
        warnings.simplefilter("always")
        for _ in range(epochs):
            list(feed)
        notices = [text for text in feed.stats().notices if " was skipped" in text or " were skipped" in text or "replaced" in text]
    assert all(warning.category is RuntimeWarning and warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught], notices


FIRST = (
    "element epoch 0 index 0 (element 0 of range) was {}: stage 'odd' raised ValueError. Further ones are counted, and told at the end of "
    "the epoch; a quarantine= file lists them all, with their errors"
)


@pytest.mark.parametrize("options", [{}, {"executor": "inline"}, {"num_workers": 1}], ids=str)
@pytest.mark.parametrize(("policy", "action"), [(ps.Skip(), "skipped"), (ps.Replace(), "replaced")])
def test_the_first_is_warned_of_and_the_end_of_the_epoch_has_the_count(policy: Any, action: str, options: dict[str, Any]) -> None:
    ds = ps.from_source(range(20)).map(odd).batch(4)
    found, notices = told(ds, 2, on_error=policy, **options)
    assert found == [FIRST.format(action)]
    assert notices == [FIRST.format(action), f"epoch 0: 4 elements were {action}, 4 by stage 'odd'"]  # as many in the next


def test_another_count_in_another_epoch_is_told() -> None:
    _, notices = told(ps.from_source(range(20)).shuffle(seed=3).take(9).map(odd).batch(3), 4, on_error=ps.Skip())
    with ps.from_source(range(20)).shuffle(seed=3).take(9).feed(executor="inline") as feed:
        shuffled = [[int(one) for one in feed] for _ in range(4)]
    counts = [sum(one % 5 == 0 for one in epoch) for epoch in shuffled]
    assert len(set(counts)) > 1
    expected = [
        f"epoch {number}: {count} element{'s were' if count > 1 else ' was'} skipped, {count} by stage 'odd'"
        for number, (before, count) in enumerate(zip([0, *counts], counts, strict=False))
        if count != before
    ]
    assert notices[1:] == expected


def test_a_feed_without_losses_says_nothing() -> None:
    assert told(ps.from_source(range(1, 5)).map(odd).batch(2), 2, on_error=ps.Skip()) == ([], [])


def test_a_warning_that_is_an_error_loses_no_batch() -> None:
    with ps.from_source(range(8)).map(odd).batch(2).feed(on_error=ps.Skip()) as feed:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="element epoch 0 index 0"):
                next(feed)
        assert np.concatenate(list(feed)).tolist() == [1, 2, 3, 4, 6, 7]


def test_the_fields_that_pytorch_has_no_tensors_for_are_named() -> None:
    assert texts_in({"x": np.zeros(3), "n": 3}) == ""
    assert texts_in(np.array(["a", "b"], object)).startswith('output="torch" leaves the element as it is: PyTorch has no tensors of texts')
    batch = {"x": np.zeros(2), "key": np.array(["a", "b"], object), "inner": [b"raw", np.array(["ab"])]}
    assert "leaves ['key'], ['inner'][0], ['inner'][1] as they are" in texts_in(batch)
    assert "['t4'], ... as they are" in texts_in({f"t{number}": "a" for number in range(9)})
