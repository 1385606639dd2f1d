"""Real processes of torch.distributed (gloo): ranks are found, plans compared, steps equal, and one rank goes on from the state of two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

_RANK = """
import json, os, sys
import numpy as np
import torch
import torch.distributed as dist
import penstock as ps

how, folder = sys.argv[1], sys.argv[2]
own, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=own, world_size=count)
rank = dist.get_rank()

def pipeline(seed=7, **ranks):
    numbers = ps.from_arrays(np.arange(103)).shuffle(seed=seed)
    return numbers.filter(lambda x: x % 3 > 0).shard_by_rank(**ranks).map(lambda x: x * 1.0).batch(4)

if how == "weights":
    ds = ps.from_arrays(np.arange(9)).mix(ps.from_arrays(np.arange(9)), weights=[1, 1 + rank]).shard_by_rank().batch(2)
elif how.startswith("own"):
    ds = ps.from_arrays(np.arange(103.0)).shuffle(seed=7).repeat().shard_by_rank().filter(lambda x: x % 3 > 0).batch(4).take(6)
else:
    ds = pipeline(seed=7 + rank) if how == "seeds" else pipeline(rank=0, num_ranks=2) if how == "given" else pipeline()
steps, out = [], {}
try:
    with ds.feed(output="torch") as feed:
        if how.endswith("steps"):
            feed.load_state_dict(json.load(open(f"{folder}/{rank}.json")))
        for batch in feed:
            if how != "uneven":
                dist.all_reduce(batch.sum())  # hangs where one rank makes a step more
            steps.append(batch.tolist())
            if len(steps) == (3 + rank if how == "uneven" else 3):
                json.dump(feed.state_dict(), open(f"{folder}/{rank}.json", "w"))
                if how in ("half", "uneven"):
                    break
    out["steps"] = steps
except ValueError as error:
    out["error"] = str(error)
    try:
        next(feed)
    except ps.errors.FeedClosed:
        out["closed"] = True
print(json.dumps(out))
dist.destroy_process_group()
"""


def _run(folder: Path, how: str, num_ranks: int = 2) -> list[dict[str, Any]]:
    (folder / "store").unlink(missing_ok=True)
    command = [sys.executable, "-c", _RANK, how, str(folder)]
    ranks = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"RANK": str(n), "WORLD_SIZE": str(num_ranks), "PATH": "/usr/bin"})
        for n in range(num_ranks)
    ]
    return [json.loads(rank.communicate(timeout=90)[0]) for rank in ranks]


def _numbers(out: list[dict[str, Any]]) -> list[float]:
    """Return the global sequence of what ranks delivered."""
    ranks = [[row for batch in one["steps"] for row in batch] for one in out]
    return [row for round_ in zip(*ranks, strict=True) for row in round_]


def test_two_ranks_share_one_sequence_and_one_goes_on_from_their_state(tmp_path: Path) -> None:
    whole = _run(tmp_path, "whole", num_ranks=1)[0]["steps"]
    sequence = [row for batch in whole for row in batch]
    both = _run(tmp_path, "whole")
    assert _numbers(both) == sequence[: len(sequence) // 2 * 2]
    half = _run(tmp_path, "half")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "0.json").write_text((tmp_path / "0.json").read_text())
    alone = _numbers(_run(tmp_path / "one", "steps", num_ranks=1))
    assert _numbers(half) + alone == sequence


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("seeds", "rank 0 runs another pipeline than rank 1: 'shuffle(seed=7)' is 'shuffle(seed=8)' there"),
        ("weights", "'mix with weights (1.0, 1.0) from 0' is 'mix with weights (1.0, 2.0) from 0' there"),
    ],
)
def test_ranks_with_other_plans_are_refused_on_all_ranks(tmp_path: Path, how: str, words: str) -> None:
    assert all(words in one["error"] and one["closed"] for one in _run(tmp_path, how))


def test_ranks_that_filter_their_own_elements_make_equal_steps_and_go_on_from_states_of_their_own(tmp_path: Path) -> None:
    whole = [one["steps"] for one in _run(tmp_path, "own")]
    assert [len(steps) for steps in whole] == [6, 6]
    assert [one["steps"] for one in _run(tmp_path, "own steps")] == [steps[3:] for steps in whole]


def test_ranks_that_are_given_are_not_compared(tmp_path: Path) -> None:
    first, second = _run(tmp_path, "given")  # as with tensor parallelism: both have the same part
    assert first["steps"] == second["steps"]
    assert len(first["steps"]) > 3


def test_states_of_different_steps_are_refused(tmp_path: Path) -> None:
    _run(tmp_path, "uneven")
    assert all("'epoch 0, step 3' is 'epoch 0, step 4' there" in one["error"] for one in _run(tmp_path, "steps"))
