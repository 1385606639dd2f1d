"""Lose a rank in the middle of an epoch and go on with fewer: no element is lost or repeated.

python examples/ranks.py

Each rank is a feed of this one process here; in training it is a process of its own, with its own `index`.
"""

import numpy as np

import penstock as ps

NUM_ELEMENTS = 960


def rank(num_ranks, index):
    batch_size = 48 // num_ranks  # all ranks together deliver 48 elements per step
    whole = ps.from_arrays(np.arange(NUM_ELEMENTS)).shuffle(seed=5)
    return whole.shard(num_ranks, index).batch(batch_size, drop_remainder=True)


def main():
    feeds = [rank(4, index).feed() for index in range(4)]
    delivered = [int(value) for _ in range(7) for feed in feeds for value in next(feed)]
    state = feeds[0].state_dict()  # all ranks are at step 7, so the state of any of them serves all
    for feed in feeds:
        feed.close()
    print(f"4 ranks delivered {len(delivered)} elements, then one was lost at {state['global']}")

    for index in range(3):
        with rank(3, index).feed() as feed:
            feed.load_state_dict(state, may_differ=("batch",))
            delivered += [int(value) for batch in feed for value in batch]
    print(f"3 ranks went on to {len(delivered)}: each of {NUM_ELEMENTS} once: {sorted(delivered) == list(range(NUM_ELEMENTS))}")


if __name__ == "__main__":
    main()
