from __future__ import annotations

import numpy as np
import pytest

import penstock as ps


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 10**12])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_dataset_of_more_elements_than_a_pass_counts_moves_to_other_shards(count: int, passes: int) -> None:
    elements = np.broadcast_to(np.zeros(1, np.int8), (count,))

    def shard(num_shards: int) -> ps.Dataset:
        return ps.from_arrays(elements).shuffle(seed=1).shard(num_shards, 0).repeat(passes)

    with shard(4).feed(num_workers=0) as feed:
        next(feed)
        state = feed.state_dict()
    with shard(3).feed(num_workers=0) as feed:
        feed.load_state_dict(state)
        assert feed.state_dict()["global"] == state["global"]
