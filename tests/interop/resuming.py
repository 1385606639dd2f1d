"""What holds for each feed: it goes on from its states, and what is copied ahead of the loop changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest

import penstock as ps
from penstock.errors import FeedClosed


def plain(item: Any) -> Any:
    """Return the numbers of an element, or of its field `x`."""
    found = np.asarray(item["x"] if isinstance(item, dict) else item)
    return found.tolist()


def resumed(made: Callable[[], ps.Dataset], stops: Iterable[int]) -> list[Any]:
    """Run a dataset, then stop behind some elements and go on with other workers each time; return all of the first run."""
    with made().feed(executor="threads", num_workers=4) as feed:
        whole = list(map(plain, feed))
    for stop in stops:
        with made().feed(executor="threads", num_workers=2) as feed:
            head = [plain(next(feed)) for _ in range(min(stop, len(whole)))]
            state = json.loads(json.dumps(feed.state_dict()))
        with made().feed(executor="threads", num_workers=1) as feed:
            feed.load_state_dict(state)
            assert head + list(map(plain, rest(feed))) == whole
    return whole


def require_counted(feed_of: Callable[[ps.Dataset], Any]) -> None:
    """A feed that copies ahead counts what the loop was given, drops the rest with its epoch, and puts an error behind what came before."""
    numbers = ps.from_arrays(np.arange(40))
    ds = numbers.shuffle(seed=7).batch(4)
    whole = list(map(plain, ds))
    for stop in range(1, len(whole)):
        with feed_of(ds) as feed:
            head = [plain(next(feed)) for _ in range(stop)]
            state = feed.state_dict()
        with feed_of(ds) as feed:
            feed.load_state_dict(state)
            assert head + list(map(plain, feed)) == whole
    with feed_of(ds) as feed, ds.feed() as other:
        for _ in range(3):
            for one, same in zip(feed, other, strict=False):
                assert plain(one) == plain(same)
                break
        assert list(map(plain, feed)) == list(map(plain, other))

    def fails(number: Any) -> Any:
        if number == 21:
            raise ValueError("21")
        return number

    got: list[Any] = []
    with feed_of(numbers.map(fails).batch(4)) as feed:
        with pytest.raises(ValueError, match="21"):
            got.extend(map(plain, feed))
        with pytest.raises(FeedClosed, match="stopped at an error"):
            next(feed)
    assert [number for batch in got for number in batch] == list(range(20))
