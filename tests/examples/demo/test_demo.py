"""`make demo` as a user runs it, on photographs that the test makes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import demo
import penstock
from model import PatchNet
from penstock.cli.screen import Screen

cv2 = pytest.importorskip("cv2")
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib (extra demo) is not installed")


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in range(3):
        rng = np.random.default_rng(number)
        pixels = cv2.resize(rng.integers(0, 256, (12, 16, 3), np.uint8), (400, 300), interpolation=cv2.INTER_CUBIC)
        pixels[:, :, number] //= 4
        (folder / f"photo{number}.png").write_bytes(bytes(cv2.imencode(".png", pixels)[1]))
    return folder


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in `folder`: matplotlib keeps files open and OpenCV threads."""
    source = str(Path(penstock.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, demo.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=folder, env=environment, check=False, timeout=100)


@needs_matplotlib
@pytest.mark.slow
def test_the_demo_trains_twice_gets_the_same_weights_and_draws_the_picture(tmp_path: Path, photographs: Path) -> None:
    arguments = ("--quick", "--images=96", "--batch=16", "--photos", str(photographs), "--out=out", "--workers=2")
    done = run_demo(tmp_path, *arguments)
    assert [line for line in done.stderr.splitlines() if "] " not in line] == []  # a slow machine is told how far it is
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert "photographs 3: photo0, photo1, photo2" in text
    assert "96 to train on and 20 held out" in text
    assert "1. Train a small model in NumPy: 6 steps of 16 random crops, 1 pass over the files" in text
    assert "batches identical: 6 of 6 are equal in every byte (SHA-256)" in text
    assert "weights identical after the last step, bit for bit" in text
    assert "on the held-out crops (33 % would be guessing)" in text
    assert "steps that sleep for" in text
    assert "and use no CPU, because this" in text
    assert text.count("times as fast with Penstock") == 2
    assert text.count("input and training take turns in one thread") == 2
    assert text.endswith(f"Picture: {Path('out', 'demo.png')}")
    records = json.loads((tmp_path / "out" / "timeline.json").read_text())
    assert sum(record["args"]["batches"] for record in records if record["name"].endswith(("step", "steps"))) == 40
    assert len(list((tmp_path / "out" / "tensorboard").glob("*tfevents*"))) == 1
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    picture = (tmp_path / "out" / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 10_000 < len(picture) < 200_000
    again = run_demo(tmp_path, *arguments)
    assert again.returncode == 0
    assert "(from an earlier run)" in " ".join(again.stdout.split())


@needs_matplotlib
def test_a_folder_that_is_none_ends_the_demo_before_it_starts(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--photos=nowhere")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "demo: 'nowhere' is not a folder" in done.stderr
    assert "fix:" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", ["0", "-3", "two", "1.5", ""])
def test_numbers_must_be_whole_and_positive(capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit):
        demo.main([f"--batch={number}"])
    assert f"{number!r} is not a whole number >= 1" in capsys.readouterr().err


def test_different_batches_or_weights_are_shouted(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (demo._Training(PatchNet(2, num_steps=2, seed=seed), ["a", "b"]) for seed in (1, 2))
    other.digests[1] = "c"
    assert demo._compare(Screen(sys.stdout), one, other) is False
    text = capsys.readouterr().out
    assert "DIFFERENT: 1 of 2 are equal in every byte" in text
    assert "DIFFERENT after the last step" in text


def test_equal_batches_and_weights_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (demo._Training(PatchNet(2, num_steps=2), ["a", "b"]) for _ in range(2))
    assert demo._compare(Screen(sys.stdout), one, other) is True
    assert "identical" in capsys.readouterr().out
