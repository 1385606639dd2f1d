from __future__ import annotations

import threading
from typing import Any

import pytest
from laws.plans import plain

import penstock as ps
from penstock._engine.lowering import Evaluator
from penstock.errors import StopRaised


def test_an_element_is_what_the_feed_delivers_there_from_any_thread() -> None:
    ds = ps.from_source(list(range(50))).shuffle(seed=2).map(lambda x: x + 1).batch(4).repeat(2)
    expected = [plain(batch) for batch in ds]
    peek = Evaluator(ds._root)
    wrong: list[int] = []

    def look() -> None:
        wrong.extend(place for place, batch in enumerate(expected) if plain(peek.element(place)) != batch)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_failing_element_is_the_error_that_the_feed_raises() -> None:
    def stops(x: Any) -> Any:
        raise StopIteration

    with pytest.raises(StopRaised) as caught:
        Evaluator(ps.from_source([5]).map(stops, name="stops")._root).element(0)
    assert "stage 'stops'" in caught.value.what
    assert "element epoch 0 index 0" in caught.value.where
