from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {"language_model.py", "ranks.py", "token_windows.py", "train_images.py"}


@pytest.fixture
def image_list(tmp_path: Path) -> Path:
    """Write 64 small JPEGs of four classes, each with its own mean colour, and their list."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(64):
        pixels = rng.integers(0, 128, (24, 32, 3), dtype=np.uint8)
        pixels[..., number % 3] += np.uint8(40 * (number % 4))
        (tmp_path / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels))
        lines.append(f"{number}.jpg {number % 4}\n")
    (tmp_path / "train.txt").write_text("".join(lines))
    return tmp_path / "train.txt"


def start(example: str, *arguments: object) -> subprocess.Popen[bytes]:
    # The smallest pipe and no buffer of ours: a program that prints is at most 4 kB ahead of who reads it.
    command = [sys.executable, "-W", "error", str(EXAMPLES / example), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=4096)


def run(example: str, *arguments: object) -> list[str]:
    with start(example, *arguments) as process:
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error.decode()
    return out.decode().splitlines()


def test_every_example_is_run_here_and_stays_short() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == EXPECTED
    assert all(len((EXAMPLES / name).read_text().splitlines()) <= 80 for name in EXPECTED)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="without a small pipe the program could end before it is killed")
def test_training_on_images_that_is_killed_twice_ends_with_the_weights_of_the_run_that_was_not(image_list: Path, tmp_path: Path) -> None:
    whole = run("train_images.py", image_list, tmp_path / "whole.npz")
    assert len(whole) == 320
    assert whole[-1].startswith("step 320, epoch 79, weights ")
    for num_steps in (14, 7):
        with start("train_images.py", image_list, tmp_path / "killed.npz") as process:
            assert process.stdout is not None
            assert all(process.stdout.readline() in [line.encode() + b"\n" for line in whole] for _ in range(num_steps))
            process.kill()
        assert process.returncode == -signal.SIGKILL
    rest = run("train_images.py", image_list, tmp_path / "killed.npz")
    assert 0 < len(rest) < len(whole)
    assert rest == whole[-len(rest) :]


def test_token_windows_of_a_mapped_file_are_learnt(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", (np.arange(100_000) * 7 % 50).astype(np.uint16))
    lines = run("token_windows.py", tmp_path / "tokens.npy")
    assert lines[0] == "Dataset (48 elements)"
    assert lines[-2].startswith("step 80, epoch 1: loss ")
    assert lines[-1].startswith("96 steps, last loss ")
    assert float(lines[-1].split()[-1]) < 0.1  # each token has one that follows it


def test_ranks_go_on_with_one_fewer_and_lose_nothing() -> None:
    lines = run("ranks.py")
    assert lines[0] == "4 ranks delivered 336 elements, then one was lost at {'epoch': 0, 'element': 336}"
    assert lines[1] == "3 ranks went on to 960: each of 960 once: True"


def test_a_language_model_goes_on_with_fewer_ranks_after_all_were_killed(tmp_path: Path) -> None:
    killed, rest, each = run("language_model.py", tmp_path)
    assert killed == "4 ranks were killed in step 10; the last checkpoint is of step 8"
    assert rest.startswith("3 ranks went on with step 9, and the data ended with step ")
    assert each == "each of 3000 documents was trained on once: True"
