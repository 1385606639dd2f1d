"""`penstock bench` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import Cli

cv2 = pytest.importorskip("cv2")


@pytest.fixture
def train_list(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(12):
        (tmp_path / f"{number}.jpg").write_bytes(bytes(cv2.imencode(".jpg", rng.integers(0, 256, (60, 80, 3), np.uint8))[1]))
    (tmp_path / "train.txt").write_text("".join(f"{number}.jpg {number % 3}\n" for number in range(12)))
    return tmp_path / "train.txt"


def test_a_list_of_images_is_measured_explained_and_written_as_json(cli: Cli, train_list: Path, tmp_path: Path) -> None:
    arguments = ["--crop=32", "--batch=4", "--seconds=0.1", "--workers=2", "--step-ms=5,20", f"--json={tmp_path / 'out.json'}"]
    told = cli("bench", train_list, *arguments)
    assert (told.code, told.err) == (0, "")
    assert "12 elements (a list of images), batches of 4, 2 threads" in told.text
    for word in ("read", "decode", "random_resized", "random_flip", "normalize", "stack", "ceiling", "first batch", "5 ms", "20 ms"):
        assert word in told.text
    assert "need not wait on this machine" in told.text
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [cost["name"] for cost in figures["costs"]] == ["read", "decode", "random_resized_crop", "random_flip", "normalize", "stack"]
    assert all(cost["us"] > 0 for cost in figures["costs"])
    assert figures["ceiling_per_s"] > 0
    assert figures["first_batch_s"] > 0
    assert figures["pixels"] == 60 * 80
    assert [wait["step_ms"] for wait in figures["waits"]] == [5.0, 20.0]
    assert all(0 <= wait["wait_share"] <= 1 for wait in figures["waits"])
    assert figures["advice"]
    assert figures["source"] == str(train_list)


def test_an_array_file_smaller_than_a_batch_is_measured_too(cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(20).reshape(10, 2))
    told = cli("bench", tmp_path / "a.npy", "--batch=64", "--seconds=0.05", "--workers=1")
    assert told.code == 0
    assert "10 elements (arrays), batches of 64, 1 thread" in told.out


@pytest.mark.parametrize("data", [b"<html>not found</html>", None], ids=["unreadable", "missing"])
def test_an_image_that_cannot_be_read_is_named(cli: Cli, train_list: Path, data: bytes | None) -> None:
    path = train_list.parent / "7.jpg"
    path.unlink() if data is None else path.write_bytes(data)
    told = cli("bench", train_list, "--seconds=0.1")
    assert told.code == 1
    assert told.err.startswith("penstock bench: ")
    assert "7.jpg" in told.err
    assert "Traceback" not in told.err


def test_a_json_file_in_no_folder_is_refused_before_measuring(cli: Cli, train_list: Path) -> None:
    told = cli("bench", train_list, f"--json={train_list.parent / 'nowhere' / 'out.json'}")
    assert (told.code, told.out) == (1, "")
    for words in ("out.json' does not exist", "penstock bench --json", "make the folder first"):
        assert words in told.err
