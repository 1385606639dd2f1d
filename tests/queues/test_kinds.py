"""What each kind of queue gives, and the checks that it makes. Their order against plain lists is in laws/test_queues.py."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from queues.crowd import Crowd, lined_up

from penstock.errors import PlanError, QueueClosed, QueueTimeout, SpecError
from penstock.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue


def test_a_fifo_without_declarations_takes_anything_and_gives_it_back_as_it_was() -> None:
    queue, things = FIFOQueue(10), [1, "text", None, [1, 2], {"a": 1}, np.zeros(2), (1, (2, 3))]
    for thing in things:
        queue.enqueue(thing)
    assert all(queue.dequeue() is thing for thing in things)


def test_a_fifo_with_declarations_gives_arrays_tuples_and_dicts() -> None:
    single = FIFOQueue(10, np.float32, ())
    single.enqueue(1)
    single.enqueue_many([2, 3])
    batch = single.dequeue_many(3)
    assert_array_equal(batch, np.array([1, 2, 3], np.float32))
    assert batch.dtype == np.float32
    pair = FIFOQueue(10, [np.uint8, np.int64], [(2, 2), ()])
    pair.enqueue((np.ones((2, 2), np.uint8), 5))
    assert pair.dequeue()[1] == 5
    named = FIFOQueue(10, [np.uint8, np.int64], [(None,), ()], ["image", "label"])
    named.enqueue_many({"label": [1, 2], "image": np.zeros((2, 3), np.uint8)})
    batch = named.dequeue_up_to(2)
    assert list(batch) == ["image", "label"]
    assert (batch["image"].shape, batch["label"].tolist()) == ((2, 3), [1, 2])


@pytest.mark.parametrize("make", [FIFOQueue, PaddingFIFOQueue, lambda *declared: RandomShuffleQueue(declared[0], 0, *declared[1:])])
def test_an_element_that_does_not_fit_is_refused_where_it_is_added_and_nothing_is_in(make: Any) -> None:
    queue = make(4, [np.float32, np.int64], [(2,), ()], ["x", "y"])
    fits = {"x": [1, 2], "y": 3}
    for wrong in ({**fits, "x": np.zeros(2)}, {**fits, "x": [1, 2, 3]}, {"x": [1, 2]}, ([1, 2], 3), {**fits, "y": 1.5}):
        with pytest.raises(SpecError) as caught:
            queue.enqueue(wrong)
        assert queue._label in caught.value.where
    masked = np.ma.masked_array(np.ones((2, 2), np.float32), [[0, 0], [0, 1]])
    for x in ([[1, 2]], [[1, 2], [1]], [1, 2], {(1, 2)}, np.ones((2, 2)), masked):
        with pytest.raises(SpecError):
            queue.enqueue_many({"x": x, "y": [1, 2]})
    assert queue.size() == 0


def test_padding_is_to_the_longest_of_the_batch_and_not_of_the_queue() -> None:
    queue = PaddingFIFOQueue(10, [np.int64, str], [(None, 2), (None,)], ["rows", "words"])
    for length in (1, 3, 2, 5):
        queue.enqueue({"rows": np.full((length, 2), length), "words": ["w"] * length})
    batch = queue.dequeue_many(3)
    assert batch["rows"].shape == (3, 3, 2)
    assert batch["rows"][0].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert batch["words"].tolist() == [["w", "", ""], ["w", "w", "w"], ["w", "w", ""]]
    assert queue.dequeue()["rows"].shape == (5, 2)
    with pytest.raises(SpecError, match="has shape"):
        queue.enqueue({"rows": np.zeros((2, 3), np.int64), "words": []})


def test_padding_without_declared_shapes_pads_every_dimension() -> None:
    queue = PaddingFIFOQueue(10)
    queue.enqueue(np.ones((1, 3)))
    queue.enqueue(np.ones((2, 1)))
    assert queue.dequeue_many(2).tolist() == [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0]]]
    queue.enqueue(np.ones(3))
    queue.enqueue(np.ones((2, 1)))
    with pytest.raises(SpecError, match="cannot be padded to one batch"):
        queue.dequeue_many(2)
    assert queue.size() == 2


def test_a_random_queue_keeps_its_least_number_until_it_is_closed() -> None:
    queue = RandomShuffleQueue(6, 3, seed=1)
    queue.enqueue_many(range(5))
    taken = [queue.dequeue(timeout_s=0) for _ in range(2)]
    with pytest.raises(QueueTimeout):
        queue.dequeue(timeout_s=0)
    assert queue.size() == 3
    with Crowd() as crowd:
        crowd.start(lambda: taken.extend(queue.dequeue_many(3).tolist()))
        lined_up(queue, readers=1)
        queue.close()
    assert sorted(taken) == [0, 1, 2, 3, 4]
    with pytest.raises(QueueClosed):
        queue.dequeue()


def test_a_random_queue_gives_another_order_which_its_seed_repeats() -> None:
    def order(seed: int | None) -> list[int]:
        queue = RandomShuffleQueue(100, 0, seed=seed)
        queue.enqueue_many(range(100))
        return list(queue.dequeue_many(100))

    assert order(7) == order(7)
    assert len({tuple(order(seed)) for seed in (7, 8, None, None)}) == 4
    first = Counter(order(seed)[0] // 10 for seed in range(1000))
    assert all(abs(first[tenth] - 100) < 60 for tenth in range(10))  # six standard deviations, and the seeds are fixed
    assert sorted(order(7)) == list(range(100))


@pytest.mark.parametrize(
    ("capacity", "least", "seed", "words"),
    [
        (4, 4, None, "nothing could ever be taken"),
        (4, 5, None, "nothing could ever be taken"),
        (4, -1, None, "min_after_dequeue is -1"),
        (4, 1.5, None, "min_after_dequeue is 1.5"),
        (4, 1, -1, "seed is -1"),
        (4, 1, 0.5, "seed is 0.5"),
        (0, 0, None, "capacity is 0"),
    ],
)
def test_a_random_queue_that_could_give_nothing_is_refused(capacity: int, least: Any, seed: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        RandomShuffleQueue(capacity, least, seed=seed)


def test_priorities_hold_among_those_who_wait_to_get_in_too() -> None:
    queue = PriorityQueue(1)
    queue.enqueue((5, "five"))
    with Crowd() as crowd:
        crowd.start(lambda: queue.enqueue((1, "one")))
        lined_up(queue, writers=1)
        assert [queue.dequeue()[1], queue.dequeue()[1]] == ["five", "one"]  # who is not in yet cannot come first


def test_a_read_that_fails_puts_back_what_it_had_also_beyond_the_capacity() -> None:
    queue = FIFOQueue(2)
    queue.enqueue_many([1, 2])
    with Crowd() as crowd:
        crowd.start(lambda: (lined_up(queue, readers=1), queue.enqueue(3), queue.close()))
        with pytest.raises(QueueClosed):
            queue.dequeue_many(5)
    assert queue.dequeue_many(3).tolist() == [1, 2, 3]
