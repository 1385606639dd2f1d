"""`penstock pack` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli.running import Cli

import penstock as ps

pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
from penstock.packing.reencode import EncodeJpeg

pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number in range(12):
        folder = tmp_path / "photos" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((60, 80 + number, 3), number * 20, np.uint8)
        (folder / f"{number}.jpg").write_bytes(EncodeJpeg("data")({"data": pixels})["data"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_photographs_are_resized_and_packed(cli: Cli, photos: Path) -> None:
    told = cli("pack", "photos", "out", "--resize=30", "--quality=80", "--shards=3", "--num-workers=1", "--shuffle=1")
    assert (told.code, told.err) == (0, "")
    assert "12 elements" in told.text
    assert "in 3 files, tfrecord" in told.text
    elements = list(ps.read_packed("out"))
    assert sorted(int(one["label"]) for one in elements) == [0] * 6 + [1] * 6
    assert {ps.image.decode(one["data"]).shape[0] for one in elements} == {30}
    assert [one["path"] for one in elements] != sorted(one["path"] for one in elements)


def test_a_rerun_says_that_all_was_there(cli: Cli, photos: Path) -> None:
    for wanted in ("written 12 elements", "written nothing: all was there already, and was verified"):
        assert wanted in cli("pack", "photos", "out").text


def test_a_dry_run_predicts_and_writes_nothing(cli: Cli, photos: Path) -> None:
    told = cli("pack", "photos", "out", "--resize=30", "--dry-run", "--shard-bytes=1kB", "--num-workers=2")
    assert told.code == 0
    assert "a look at 12 elements of a folder of images; nothing was written" in told.text
    assert "would write 12 elements, about" in told.text
    assert not Path("out").exists()


def test_a_corrupt_photograph_is_an_error_or_left_out_and_listed(cli: Cli, photos: Path) -> None:
    (photos / "photos" / "a" / "4.jpg").write_bytes(b"<html>not found</html>")
    told = cli("pack", "photos", "out", "--resize=30")
    assert told.code == 1
    assert "4.jpg" in told.err
    assert "--on-error skip leaves such elements out" in told.err
    told = cli("pack", "photos", "out2", "--resize=30", "--on-error=skip")
    assert told.code == 0
    assert "left out 1 elements, listed in the manifest" in told.text
    assert "4.jpg" in told.text
    assert len(ps.read_packed("out2")) == 11


def test_a_damaged_photograph_outside_the_sample_is_told_without_the_stack_of_its_worker(cli: Cli, photos: Path) -> None:
    good = (photos / "photos" / "a" / "0.jpg").read_bytes()
    for number in range(180):
        (photos / "photos" / "a" / f"more{number:03d}.jpg").write_bytes(good if number != 99 else good[:300])
    told = cli("pack", "photos", "out", "--resize=30", "--shards=4", "--num-workers=1")
    assert told.code == 1
    assert "Traceback" not in told.err
    assert len(told.err.splitlines()) <= 6
    lines = told.err.splitlines()
    assert "JPEG image is damaged" in lines[0]
    assert any("more099.jpg" in line for line in lines[1:4])
    assert "--on-error skip leaves such elements out" in told.err
    kept = {path.name: path.stat().st_mtime_ns for path in Path("out").glob("*.tfrecord")}
    assert kept
    told = cli("pack", "photos", "out", "--resize=30", "--shards=4", "--num-workers=1", "--on-error=skip")
    assert told.code == 0
    assert "left out 1 elements" in told.text
    assert {name: (Path("out") / name).stat().st_mtime_ns for name in kept} == kept


def test_a_function_of_the_users_is_run_in_processes(cli: Cli, photos: Path) -> None:
    (photos / "mine_for_pack.py").write_text("def short(element):\n    return {'n': len(element['data']), 'label': element['label']}\n")
    told = cli("pack", "photos", "out", "--map=mine_for_pack:short", "--format=tar", "--num-workers=2", "--shards=2")
    assert (told.code, told.err) == (0, "")
    assert ps.read_packed("out")[0].keys() == {"n", "label"}


def test_an_error_of_a_users_function_in_a_worker_is_told_by_its_own_frames(cli: Cli, photos: Path) -> None:
    Path("lines.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(1000)))
    Path("failing_for_pack.py").write_text(
        "def deep(element):\n    raise KeyError('nope')\ndef made(element):\n    return deep(element) if element['n'] == 101 else element\n"
    )
    told = cli("pack", "lines.jsonl", "out", "--map=failing_for_pack:made", "--num-workers=1")
    assert told.code == 1
    lines = told.err.splitlines()
    assert [line for line in lines if line.startswith("  File ")] == [
        f'  File "{photos / "failing_for_pack.py"}", line {number}, in {name}' for number, name in ((4, "made"), (2, "deep"))
    ]
    assert "KeyError: 'nope'" in lines
    assert [line.split(",")[0] for line in lines if line.startswith("  note:")] == [
        "  note:  penstock: stage 'made'",
        "  note:  penstock: job 0 of 1 (0)",
        "  note:  penstock: --on-error skip leaves such elements out",
    ]
    assert "(line 102 of 'lines.jsonl')" in told.err


def test_a_dataset_of_the_users_is_packed(cli: Cli, photos: Path) -> None:
    (photos / "data_for_pack.py").write_text(
        "import penstock as ps\n"
        "def noisy(number, rng):\n    return {'number': number, 'noise': float(rng.random())}\n"
        "train = ps.from_source(range(10)).map(noisy, seed=1)\n"
        "def made():\n    return train.take(3)\n"
        "other = 5\n"
    )
    assert cli("pack", "data_for_pack:train", "out").code == 0
    elements = list(ps.read_packed("out"))
    assert len({float(one["noise"]) for one in elements}) == 10
    assert cli("pack", "data_for_pack:made", "three").code == 0
    assert len(ps.read_packed("three")) == 3
    told = cli("pack", "data_for_pack:other", "none")
    assert told.code == 1
    assert "'data_for_pack:other' is a int, not a dataset" in told.err


def test_files_of_records_are_read_as_such(cli: Cli, photos: Path) -> None:
    ps.pack(ps.from_source([{"a": number} for number in range(5)]), "ref", executor="threads")
    Path("lines.jsonl").write_text('{"b": 1}\n{"b": 2}\n')
    for source in ("ref/*.tfrecord", "ref/data-00000-of-00001.tfrecord"):
        told = cli("pack", source, "out")
        assert told.code == 1
        assert f"write `ds = ps.read_tfrecord({source!r}, features={{...}})`" in told.err
    Path("sizes_for_pack.py").write_text("def lengths(element):\n    return {'size': len(element['record'])}\n")
    assert cli("pack", "ref/*.tfrecord", "sizes", "--map=sizes_for_pack:lengths").code == 0
    assert len(ps.read_packed("sizes")) == 5
    assert cli("pack", "lines.jsonl", "lines").code == 0
    assert [int(one["b"]) for one in ps.read_packed("lines")] == [1, 2]
    told = cli("pack", "s3://bucket/photos", "out")
    assert told.code == 1
    assert "'s3://bucket/photos' holds cannot be told by its name" in told.err
    assert "--resize and --quality are for image files" in cli("pack", "lines.jsonl", "out", "--resize=3").err
    assert "--root='x' is for list files" in cli("pack", "lines.jsonl", "out", "--root=x").err


def test_arrays_are_packed_in_threads(cli: Cli, photos: Path) -> None:
    np.savez("a.npz", x=np.arange(20).reshape(10, 2), y=np.arange(10))
    assert cli("pack", "a.npz", "out", "--compression=gzip").code == 0
    assert [int(one["y"]) for one in ps.read_packed("out")] == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["photos", "out", "--map=a:b", "--resize=3"], "--map and --resize are two ways to make the elements"),
        (["missing", "out"], "'missing' does not exist"),
        (["nomodule_here:x", "out"], "module 'nomodule_here' cannot be imported"),
        (["photos", "out", "--quality=101"], "quality=101 is out of range"),
        (["photos", "out", "--quality=0"], "quality=0 is out of range"),
        (["photos", "out", "--compression=lz4"], "compression='lz4' is not known for tfrecord"),
        (["photos", "out", "--map=os:sep"], "module 'os' has no function 'sep'"),
        (["a.npy", "out", "--resize=3"], "--resize and --quality are for image files"),
    ],
)
def test_arguments_that_do_not_go_together_are_errors(cli: Cli, photos: Path, arguments: list[str], words: str) -> None:
    np.save("a.npy", np.zeros((3, 2)))
    told = cli("pack", *arguments)
    assert told.code == 1
    assert words in told.err
    assert not Path("out").exists()
