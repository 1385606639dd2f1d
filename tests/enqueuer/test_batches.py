"""SampleBatches: full batches, bad samples by policy, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from enqueuer import feeding

import penstock as ps
from penstock.errors import PlanError, SourceError, SpecError, StopRaised, TooManySkipped

pytestmark = pytest.mark.usefixtures("fork_server")


def labels(batches: Any) -> list[list[int]]:
    return [batch["label"].tolist() for batch in batches]


def test_samples_are_stacked_and_the_last_batch_has_what_is_left() -> None:
    batches = ps.SampleBatches([{"x": np.full(2, number), "label": number} for number in range(7)], 3)
    found = list(batches)
    assert labels(found) == [[0, 1, 2], [3, 4, 5], [6]]
    assert found[0]["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert (batches.num_samples, batches.num_skipped) == (7, 0)
    assert labels(ps.SampleBatches(range(7), 3, load=lambda key: {"label": key}, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]


def test_samples_may_be_arrays_numbers_and_tuples() -> None:
    assert [batch.tolist() for batch in ps.SampleBatches(range(3), 2)] == [[0, 1], [2]]
    images, numbers = next(iter(ps.SampleBatches([(np.zeros((2, 2)), 1.5)] * 4, 4)))
    assert (images.shape, numbers.dtype) == ((4, 2, 2), np.float64)


@pytest.mark.parametrize("policy", [ps.Skip(), ps.Replace()])
def test_a_bad_sample_is_left_out_counted_and_kept_with_its_error_and_batches_stay_full(policy: ps.Skip | ps.Replace) -> None:
    batches = ps.SampleBatches(range(20), 4, load=feeding.load, on_error=policy)
    assert labels(batches) == [[0, 1, 2, 4], [5, 6, 7, 9], [10, 11, 12, 14], [15, 16, 17, 19]]
    assert (batches.num_samples, batches.num_skipped) == (16, 4)
    assert [(skipped.number, skipped.key, str(skipped.error)) for skipped in batches.skipped] == [
        (number, number, f"{number} is bad") for number in (3, 8, 13, 18)
    ]
    assert all(skipped.error.__traceback__ is None for skipped in batches.skipped)


@pytest.mark.parametrize("policy", [{}, {"on_error": ps.Skip(errors=OSError)}], ids=str)
def test_the_default_and_a_policy_for_other_errors_raise_with_number_and_key_behind_the_whole_batches_before(policy: Any) -> None:
    batches = iter(ps.SampleBatches([7, 6, 5, 3], 2, load=feeding.load, **policy))
    assert next(batches)["label"].tolist() == [7, 6]
    with pytest.raises(ValueError, match="3 is bad") as caught:
        next(batches)
    assert caught.value.__notes__ == ["penstock: SampleBatches, sample 3 (3)"]


def test_samples_may_be_written_into_one_array() -> None:
    buffer = np.zeros(2)
    assert [batch[:, 0].tolist() for batch in ps.SampleBatches(range(4), 2, load=lambda key: np.add(0, key, out=buffer))] == [
        [0, 1],
        [2, 3],
    ]


def test_a_sample_that_does_not_fit_the_first_is_bad() -> None:
    samples = [np.zeros(3), np.zeros(4), np.ones(3), {"x": 1}, np.ones(3, np.float32), None, np.full(3, 2.0)]
    batches = ps.SampleBatches(samples, 3, on_error=ps.Skip())
    assert [batch.tolist() for batch in batches] == [[[0, 0, 0], [1, 1, 1], [2, 2, 2]]]
    assert [(skipped.number, skipped.key) for skipped in batches.skipped] == [(1, None), (3, None), (4, None), (5, None)]
    with pytest.raises(SpecError) as caught:
        list(ps.SampleBatches(samples, 3))
    assert caught.value.what.startswith("not as the samples before: ")
    assert caught.value.where == "SampleBatches, sample 1"


def test_too_many_bad_samples_are_an_error() -> None:
    batches = ps.SampleBatches(range(20), 4, load=feeding.load, on_error=ps.Skip(limit=2))
    with pytest.raises(TooManySkipped) as caught:
        list(batches)
    assert caught.value.what == "3 samples were bad, the limit is 2"
    assert str(caught.value.__cause__) == "13 is bad"
    assert "sample 13 (13)" in caught.value.where
    rate = ps.SampleBatches(range(1000), 4, load=feeding.load, on_error=ps.Skip(limit=0.1))
    with pytest.raises(TooManySkipped) as caught:
        list(rate)
    assert caught.value.what == "11 samples were bad, the limit is 0.1 of the 54 of this pass"
    assert len(list(ps.SampleBatches(range(1000), 4, load=feeding.load, on_error=ps.Skip(limit=0.25)))) == 200


def test_a_limit_that_is_a_number_counts_distinct_samples_as_in_a_feed_and_a_rate_is_one_of_each_pass() -> None:
    batches = ps.SampleBatches(range(10), 4, load=feeding.load, on_error=ps.Skip(limit=2))
    feed = ps.from_source(list(range(10))).map(feeding.load).feed(on_error=ps.Skip(limit=2), num_workers=0)
    for _ in range(3):
        assert labels(batches) == [[0, 1, 2, 4], [5, 6, 7, 9]]
        assert [element["label"] for element in feed] == [0, 1, 2, 4, 5, 6, 7, 9]
    assert batches.num_skipped == feed.stats().num_skipped == 6
    rate = ps.SampleBatches(range(10), 4, load=feeding.load, on_error=ps.Skip(limit=0.02))
    assert [len(list(rate)) for _ in range(5)] == [2] * 5


Makes = Callable[[], Any]


@pytest.mark.parametrize("once", [lambda: iter(range(10)), lambda: (number for number in range(10))])
@pytest.mark.parametrize("break_off", [False, True])
def test_a_second_pass_over_what_can_be_read_once_is_an_error_and_not_an_empty_pass(once: Makes, break_off: bool) -> None:
    batches = ps.SampleBatches(once(), 5)
    assert len(list(islice(batches, 2 if break_off else None))) == 2
    with pytest.raises(SourceError) as caught:
        list(batches)
    assert caught.value.what.endswith("are at their end and can be read only once")
    assert "give a list" in caught.value.fix


def test_a_retry_loads_again_and_ends_in_what_it_says() -> None:
    calls: dict[int, int] = {}

    def flaky(key: int) -> int:
        calls[key] = calls.get(key, 0) + 1
        if key == 1 and calls[key] < 3:
            raise OSError("not yet")
        if key == 2:
            raise OSError("never")
        return key

    batches = ps.SampleBatches(range(4), 2, load=flaky, on_error=ps.Retry(2, then=ps.Skip()))
    assert [batch.tolist() for batch in batches] == [[0, 1], [3]]
    assert calls == {0: 1, 1: 3, 2: 3, 3: 1}
    with pytest.raises(OSError, match="never"):
        list(ps.SampleBatches(range(4), 2, load=flaky, on_error=ps.Retry(1)))


def test_an_error_of_the_iterable_is_raised_whatever_the_policy() -> None:
    def samples() -> Iterator[int]:
        yield from range(3)
        raise LookupError("the list is broken")

    batches = iter(ps.SampleBatches(samples(), 2, on_error=ps.Skip()))
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(LookupError, match="the list is broken"):
        next(batches)


def test_a_load_that_raises_an_end_is_an_error_and_never_a_short_pass() -> None:
    def ends(key: int) -> int:
        raise StopIteration

    with pytest.raises(StopRaised):
        list(ps.SampleBatches(range(4), 2, load=ends, on_error=ps.Skip()))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: ps.SampleBatches([1], 0), "batch_size=0 is not a whole number >= 1"),
        (lambda: ps.SampleBatches(7, 1), "'int' is not iterable"),  # type: ignore[arg-type]
        (lambda: ps.SampleBatches([1], 1, load=3), "load=3 is not a function"),  # type: ignore[arg-type]
        (lambda: ps.SampleBatches([1], 1, on_error="skip"), "on_error='skip' is no policy"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_an_error_with_its_value(call: Any, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        call()
    assert caught.value.what == what


def test_it_feeds_an_enqueuer_in_processes() -> None:
    enqueuer = ps.GeneratorEnqueuer(ps.SampleBatches(range(20), 4, load=feeding.load, on_error=ps.Skip()), True, share=True)
    enqueuer.start(2)
    assert [batch["label"].tolist() for batch in enqueuer.get()] == [[0, 1, 2, 4], [5, 6, 7, 9], [10, 11, 12, 14], [15, 16, 17, 19]]
    enqueuer.stop()
