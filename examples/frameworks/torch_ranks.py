"""Two ranks of torch.distributed share one order behind a filter; one of them is lost, and the other goes on alone: nothing is lost.

    python examples/frameworks/torch_ranks.py

It starts the ranks itself, with gloo. In training, torchrun starts them, and `shard_by_rank()` finds their numbers.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist

import penstock as ps

LOST_AT = 5


def pipeline():
    numbers = ps.from_arrays(np.arange(101)).shuffle(seed=7).filter(lambda n: n % 3 > 0)
    return numbers.shard_by_rank().map(lambda n: n * 1.0).batch(4)


def rank(folder):
    """Train as one rank, from the saved state if there is one; the last line that it prints is what it saw."""
    own, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{count}", rank=own, world_size=count)
    saved, seen = os.path.join(folder, "feed.json"), []
    with pipeline().feed(output="torch") as feed:
        if os.path.exists(saved):
            with open(saved, encoding="utf-8") as file:
                feed.load_state_dict(json.load(file))
        for batch in feed:
            total = batch.sum()
            dist.all_reduce(total)  # as gradients are: a rank with one step more or less would wait for ever
            seen += batch.tolist()
            if dist.get_world_size() == 2 and feed.step == LOST_AT:
                if dist.get_rank() == 0:
                    with open(saved, "w", encoding="utf-8") as file:
                        json.dump(feed.state_dict(), file)
                break
    print(json.dumps(seen))
    dist.destroy_process_group()


def run(folder, num_ranks):
    """Start the ranks; return what each of them saw."""
    command = [sys.executable, os.path.abspath(__file__), folder]
    ranks = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "RANK": str(n), "WORLD_SIZE": str(num_ranks)})
        for n in range(num_ranks)
    ]
    return [json.loads(one.communicate()[0].splitlines()[-1]) for one in ranks]


def main():
    with tempfile.TemporaryDirectory() as folder:
        both = run(folder, 2)
        alone = run(folder, 1)
    first = [number for pair in zip(*both, strict=True) for number in pair]
    every = first + alone[0]
    order = [float(number) for number in ps.from_arrays(np.arange(101)).shuffle(seed=7).filter(lambda n: n % 3 > 0)]
    print(f"two ranks saw {len(first)} elements in {LOST_AT} steps, one of them the other {len(alone[0])}")
    print(f"each element once, in the global order: {every == order}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank(sys.argv[1]) if len(sys.argv) > 1 else main()
