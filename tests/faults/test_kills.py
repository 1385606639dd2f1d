"""A training program killed at random times and started again: FAULTS E7.

The child saves its state after every step, atomically (a temporary name, then rename), and logs what each step was given. The state
counts what was delivered, so a restart repeats exactly the steps between the last saved state and the kill, and loses none.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from forked import forks

import penstock as ps

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")

TRAIN = """
import json, os, sys
import penstock as ps

def keep(x): return x % 5 != 0

def check(x):
    if x % 7 == 3: raise ValueError(f"bad {x}")
    return x

def dataset():
    return ps.from_source(range(4000)).shuffle(seed=11).filter(keep).batch(3).repeat(3)

def train(folder, options, every):
    state_path = os.path.join(folder, "state.json")
    log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with dataset().feed(**options) as feed:
        if os.path.exists(state_path):
            with open(state_path) as file:
                feed.load_state_dict(json.load(file))
        os.write(log, f"begin {feed.step}\\n".encode())
        for batch in feed:
            os.write(log, (json.dumps([feed.step, batch.tolist()]) + "\\n").encode())
            if feed.step % every == 0:
                with open(state_path + ".new", "w") as file:
                    json.dump(feed.state_dict(), file)
                    file.flush()
                os.replace(state_path + ".new", state_path)
        os.write(log, b"end\\n")

if __name__ == "__main__":
    train(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
"""

BEGIN = """
import penstock as ps
for way in ({"executor": "inline"}, {"num_workers": 1}):  # modules are imported when they are first needed
    list(ps.from_source(range(8)).feed(**way))
"""

WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 1},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 5, "memory_bytes": 1},
]


def run_with_kills(folder: Path, seed: int, num_kills: int, program: str = TRAIN) -> int:
    """Run the program to its end, killed `num_kills` times at random lines of its log; return how many kills hit it."""
    chance = random.Random(seed)
    every = chance.choice([1, 2, 7])
    hit = 0
    with forks(BEGIN) as warm:
        for number in range(num_kills + 1):
            way = chance.choice(WAYS)
            begun = _log_bytes(folder)
            with warm.program(program, str(folder), json.dumps(way), str(every)) as child:
                if number < num_kills:
                    while child.poll() is None and _log_bytes(folder) <= begun:  # until it has begun
                        threading.Event().wait(0.002)
                    threading.Event().wait(chance.random() ** 2 * 0.3)
                    with suppress(ProcessLookupError):  # it has come to its end
                        os.killpg(child.pid, signal.SIGKILL)
                hit += child.wait(60) == -signal.SIGKILL
                assert child.errors() == ""
    return hit


def _log_bytes(folder: Path) -> int:
    return (folder / "log").stat().st_size if (folder / "log").exists() else 0


def _log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines() if (folder / "log").exists() else []


def check(folder: Path, text: str = TRAIN, **options: Any) -> None:
    """Check that the steps of all lives join to the run that was never killed."""
    program: dict[str, Any] = {"__name__": "train"}
    exec(compile(text, "train.py", "exec"), program)
    with program["dataset"]().feed(executor="inline", **options) as feed:
        reference = [batch.tolist() for batch in feed]
    steps: list[Any] = []
    for line in _log(folder):
        if line.startswith("begin "):
            resumed_at = int(line.split()[1])
            assert resumed_at <= len(steps)  # nothing is lost
            del steps[resumed_at:]  # what follows is exactly repeated
        elif line != "end":
            step, batch = json.loads(line)
            assert step == len(steps) + 1
            assert batch == reference[step - 1]
            steps.append(batch)
    assert steps == reference
    assert _log(folder)[-1] == "end"
    assert json.loads((folder / "state.json").read_text())["step"] <= len(reference)


def test_a_program_killed_three_times_goes_on_to_the_sequence_of_the_run_that_was_never_killed(tmp_path: Path) -> None:
    assert run_with_kills(tmp_path, seed=1, num_kills=3) > 0
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 14))
def test_a_program_killed_at_many_random_times_loses_and_repeats_nothing(seed: int, tmp_path: Path) -> None:
    run_with_kills(tmp_path, seed, num_kills=10)
    check(tmp_path)


SKIPPING = (
    TRAIN.replace(".filter(keep).batch(3)", ".map(check).filter(keep).batch(3)")
    .replace("dataset().feed(**options)", "dataset().feed(on_error=ps.Skip(quarantine=os.path.join(folder, 'bad.jsonl')), **options)")
    .replace("import json, os, sys", "import json, os, sys, warnings; warnings.filterwarnings('ignore', 'element epoch')")
)


@pytest.mark.slow
def test_a_program_that_skips_and_is_killed_has_every_skipped_element_in_its_file_and_feeds_them_again(tmp_path: Path) -> None:
    assert run_with_kills(tmp_path, seed=3, num_kills=3, program=SKIPPING) > 0
    check(tmp_path, SKIPPING, on_error=ps.Skip())
    bad = [value for value in range(4000) if value % 7 == 3]
    lines = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    found = {tuple(record["keys"][0][:2]) for record in lines}
    assert found == {(epoch, value) for epoch in range(3) for value in bad}
    state = json.loads((tmp_path / "state.json").read_text())
    assert 0 < sum(entry[2] for entry in state["lost"]) <= 3 * len(bad)
    assert sorted(ps.read_quarantine(tmp_path / "bad.jsonl", ps.from_source(range(4000)))) == sorted(bad * 3)
