"""The two training scripts of docs/from-dataloader.md with the real DataLoader, as they stand on the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "from-dataloader.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    blocks = BLOCKS.findall(PAGE.read_text(encoding="utf-8"))
    data = next(place for place, block in enumerate(blocks) if "simplejpeg.encode_jpeg" in block)
    (tmp_path / "data.py").write_text("import numpy as np\n" + blocks[data], encoding="utf-8")
    for name, block in zip(("before.py", "after.py"), blocks[data + 1 : data + 3], strict=True):
        (tmp_path / name).write_text(block, encoding="utf-8")
    run(tmp_path, "data.py")
    return tmp_path


def run(folder: Path, name: str, num_steps: int | None = None) -> list[str]:
    """Run a script, kill it after `num_steps` if given, and return the lines that it printed."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "TMPDIR": str(folder)}  # torch leaves a folder there
    command = [sys.executable, "-u", "-W", "error", name]
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []
        if num_steps is not None:
            process.stdin.write("\n" * num_steps)  # the next step waits for a line that does not come
            process.stdin.flush()
            lines = [process.stdout.readline() for _ in range(num_steps)]
            process.kill()
        rest, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0 if num_steps is None else -9, "")
    return ("".join(lines) + rest).splitlines()


def test_the_script_with_a_dataloader_trains_for_three_epochs(folder: Path) -> None:
    assert [line.partition(":")[0] for line in run(folder, "before.py")] == ["epoch 0", "epoch 1", "epoch 2"]


def test_the_script_with_a_feed_trains_as_many_steps_and_resumes_exactly_after_a_kill(folder: Path) -> None:
    script = (folder / "after.py").read_text(encoding="utf-8")
    (folder / "after.py").write_text(
        script.replace("loss.backward()", 'loss.backward(), __import__("sys").stdin.readline()'), encoding="utf-8"
    )
    whole = run(folder, "after.py")
    assert [line.partition(":")[0] for line in whole] == [f"step {number}" for number in range(1, 16)]
    assert run(folder, "after.py") == []
    (folder / "after.pt").unlink()
    killed = run(folder, "after.py", 7)
    assert len(killed) == 7
    assert killed + run(folder, "after.py") == whole
