"""Runs that are broken off at random and go on with another executor: FAULTS R3. `python tests/faults/kill_resume.py [runs] [first seed]`.

A run is a chain of lives. Each life has an executor and a number of workers of its own, loads the state that the one before left, and is
broken off after a random number of items; the workers of a life with processes are killed at random times meanwhile. What all lives
delivered, joined, is the sequence of a run in line that nothing disturbs.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.deaths import PLANS, DiesSometimes, killer, unhurt

from penstock.testing.runs import exact

WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"num_workers": 2, "executor": "threads"},
    {"num_workers": 5, "executor": "threads", "memory_bytes": 1},
    {"num_workers": 1, "executor": "processes"},
    {"num_workers": 2, "executor": "processes"},
    {"num_workers": 3, "executor": "processes"},
]


def broken_off_and_resumed(seed: int, folder: Path) -> list[str]:
    """Run one chain of lives; return what each life was, and raise AssertionError where the joined items are not the sequence."""
    chance = random.Random(seed)
    name = chance.choice(sorted(PLANS))
    with PLANS[name](unhurt).feed(executor="inline") as feed:
        whole = [exact(item) for item in feed]
    items: list[Any] = []
    lives: list[str] = []
    state, num_lives = None, chance.randrange(2, 5)
    while len(items) < len(whole) or not lives:
        last = len(lives) == num_lives - 1
        way = chance.choice(WAYS[3:] if not lives else WAYS)
        hurt = DiesSometimes(folder, seed, 2) if way["executor"] == "processes" else unhurt
        count = len(whole) if last else chance.randrange(1, 2 * len(whole) // num_lives + 2)
        with PLANS[name](hurt).feed(**way) as feed:
            if state is not None:
                feed.load_state_dict(state)
            with killer(feed, chance.randrange(1 << 30), 2 if way["executor"] == "processes" else 0):
                while count and len(items) < len(whole):
                    items.append(exact(next(feed)))
                    state = json.loads(json.dumps(feed.state_dict()))
                    count -= 1
        lives.append(f"{way} to {len(items)}")
    assert items == whole, f"seed {seed}, {name}, {lives}: " + (
        f"{len(items)} items of {len(whole)}"
        if len(items) != len(whole)
        else f"item {next(n for n, pair in enumerate(zip(items, whole, strict=True)) if pair[0] != pair[1])}"
    )
    return lives


def main(arguments: list[str]) -> int:
    """Run many chains; print those that are not the sequence."""
    count, first = int(arguments[0]) if arguments else 1000, int(arguments[1]) if arguments[1:] else int(time.time())
    broken = 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                broken_off_and_resumed(seed, Path(folder))
            except Exception as error:
                broken += 1
                print(f"BROKEN kill and resume, seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"kill and resume: {count - broken} of {count} runs are the sequence of the undisturbed one", flush=True)
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
