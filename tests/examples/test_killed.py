"""The training programs of the pages, killed and started again as the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import output_of

ROOT = Path(__file__).parents[2]
BLOCKS = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
SLEEP = re.compile(r"time\.sleep\([\d.]+\)")
STEP = re.compile(r"step (\d+): (\S+)  ")
NUM_STEPS = 15
CASES = [("README.md", "checkpoint.json"), ("docs/guide.md", "checkpoint.npz")]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "checkpoint"), CASES, ids=[page for page, _ in CASES])
def test_a_training_program_that_is_killed_twice_continues_each_time_with_the_next_step(page: str, checkpoint: str, tmp_path: Path) -> None:
    before, program = program_of(page, checkpoint)
    output_of("-c", before, cwd=tmp_path)
    (tmp_path / "train.py").write_text(program, encoding="utf-8")

    whole = run(tmp_path)
    assert [number for number, _ in whole] == list(range(1, NUM_STEPS + 1))
    assert run(tmp_path) == [], "a finished run has nothing left to do"
    (tmp_path / checkpoint).unlink()
    first, second = run(tmp_path, 2), run(tmp_path, 5)  # the second kill is in the second epoch
    assert (len(first), len(second)) == (2, 5)
    assert first + second + run(tmp_path) == whole


def program_of(page: str, checkpoint: str) -> tuple[str, str]:
    """Return the blocks before a page's training program, and the training program: a step reads a line instead of sleeping."""
    blocks = BLOCKS.findall((ROOT / page).read_text(encoding="utf-8"))
    place = next(number for number, block in enumerate(blocks) if f'os.path.exists("{checkpoint}")' in block)
    program, num_sleeps = SLEEP.subn('__import__("sys").stdin.readline()', blocks[place])
    assert num_sleeps == 1
    return "\n".join(blocks[:place]), program


def run(folder: Path, num_steps: int | None = None) -> list[tuple[int, str]]:
    """Run the program, kill it after `num_steps` if given, and return the number and the value of each step that it printed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-W", "error", "train.py"], cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        printed = ""
        if num_steps is not None:
            process.stdin.write("\n" * num_steps)  # the next step waits for a line that does not come
            process.stdin.flush()
            while len(STEP.findall(printed)) < num_steps and (piece := process.stdout.read(1)):
                printed += piece
            process.kill()
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == (0 if num_steps is None else -9), errors
    return [(int(number), value) for number, value in STEP.findall(printed + rest)]
