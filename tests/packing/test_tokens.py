"""Documents packed as tokens: the bytes, Megatron-LM's index beside them, and what a kill leaves of the two files of a shard."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import DeadlyDisk, Disk, StepDisk, exit_code_of, hashes
from sources.test_megatron import index_of

import penstock as ps
from penstock.cli.command import main
from penstock.errors import PackError, PlanError, SourceError, SpecError

COUNT = 90


def tokenised(number: int) -> Any:
    """Make a document of 0 to 6 tokens."""
    return np.arange(number, number + number % 7)


def as_uint16(number: int) -> dict[str, Any]:
    return {"ids": tokenised(number).astype(np.uint16)}


def has_any(tokens: Any) -> bool:
    return len(tokens) > 0


def documents(count: int = COUNT) -> ps.Dataset:
    return ps.from_source(range(count)).map(tokenised)


def packed(dest: Path, ds: ps.Dataset | None = None, **options: Any) -> Any:
    given = {"format": "megatron", "executor": "threads", "num_workers": 1, "num_shards": 3}
    return ps.pack(documents() if ds is None else ds, dest, **(given | options))


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_shards_hold_the_tokens_and_the_index_of_their_documents(tmp_path: Path, executor: str) -> None:
    manifest = packed(tmp_path, executor=executor, num_workers=2)
    assert len(manifest) == COUNT
    for number in range(3):
        shard = [tokenised(one) for one in range(number * 30, number * 30 + 30)]
        path = tmp_path / f"data-{number:05}-of-00003.bin"
        assert path.read_bytes() == b"".join(one.astype("<i4").tobytes() for one in shard)
        assert path.with_suffix(".idx").read_bytes() == index_of([len(one) for one in shard], [*range(31)], 4, 4)
    assert [column.words() for column in manifest.columns] == ["tokens: int64[None] as int32"]
    packed(tmp_path / "alone", format="tokens")
    assert [Path(path).read_bytes() for path in manifest.files()] == [path.read_bytes() for path in sorted(tmp_path.glob("alone/*.bin"))]


def test_they_are_read_as_documents_as_windows_and_as_they_were_packed(tmp_path: Path) -> None:
    wanted = [tokenised(number).tolist() for number in range(COUNT)]
    packed(tmp_path)
    assert [one["tokens"].tolist() for one in ps.read_megatron(tmp_path / "*")] == wanted
    assert [one.tolist() for one in ps.read_packed(tmp_path)] == wanted
    packed(tmp_path / "tokens", documents().shuffle(seed=2, reshuffle_each_epoch=False), format="tokens", dtype=np.uint16)
    windows = ps.read_tokens(str(tmp_path / "tokens/*.bin"), 4, dtype=np.uint16)
    assert {int(token) for window in windows for token in window["tokens"]} <= set(itertools.chain(*wanted))
    with pytest.raises(PlanError, match="nothing says where a document ends") as caught:
        ps.read_packed(tmp_path / "tokens")
    assert "dtype=np.uint16" in caught.value.fix


def test_the_dtype_in_the_file_follows_from_the_elements_or_is_given(tmp_path: Path) -> None:
    narrow = ps.from_source(range(COUNT)).map(as_uint16)
    assert packed(tmp_path / "own", narrow).columns[0].stored == "uint16"
    assert packed(tmp_path / "given", narrow, dtype="int32").columns[0].stored == "int32"
    back = ps.read_packed(tmp_path / "given")[8]
    assert (back["ids"].tolist(), back["ids"].dtype) == ([8], np.uint16)


@pytest.mark.parametrize(("offset", "dtype"), [(1 << 16, "uint16"), (1 << 31, "int32"), (-(1 << 31) - 100, "int32"), (-89, "uint16")])
def test_a_token_that_the_dtype_does_not_hold_is_an_error_of_its_element(tmp_path: Path, offset: int, dtype: str) -> None:
    ds = ps.from_source([np.arange(3), np.arange(2) + offset] + [np.arange(3)] * 198)
    with pytest.raises(SpecError, match=f"token {offset} is beyond {dtype}"):
        packed(tmp_path / "raised", ds, dtype=dtype)
    manifest = packed(tmp_path / "skipped", ds, dtype=dtype, on_error=ps.Skip())
    assert (len(manifest), [lost["key"] for lost in manifest.skipped]) == (199, [[[0, 1, 0]]])


@pytest.mark.parametrize("element", [{"a": np.arange(3), "b": np.arange(3)}, np.zeros(3), np.zeros((2, 2), int), 7, b"abc", [1, 2, 3]])
def test_other_elements_than_documents_are_refused(tmp_path: Path, element: Any) -> None:
    with pytest.raises(SpecError, match="a document of tokens is one array of integers, of one dimension"):
        packed(tmp_path, ps.from_source([element]).map(lambda one: one))


def test_a_stream_becomes_pairs_of_files_too(tmp_path: Path) -> None:
    manifest = packed(tmp_path, documents().filter(has_any).take(50), num_shards=None, shard_bytes=200)
    assert len(manifest.shards) > 2
    pairs = [(path.name, path.with_suffix(".idx").is_file()) for path in map(Path, manifest.files())]
    assert pairs == [(f"data-{number:05}-of-{len(pairs):05}.bin", True) for number in range(len(pairs))]
    wanted = [tokenised(number).tolist() for number in range(COUNT) if number % 7][:50]
    assert [one["tokens"].tolist() for one in ps.read_megatron(tmp_path / "data*")] == wanted
    assert packed(tmp_path, documents().filter(has_any).take(50), num_shards=None, shard_bytes=200).was_there


def test_an_index_that_is_lost_changed_or_too_many_is_found(tmp_path: Path) -> None:
    packed(tmp_path / "good")
    for name, change, words in (
        ("data-00001-of-00003.idx", Path.unlink, "'data-00001-of-00003.idx' is missing"),
        ("data-00001-of-00003.idx", lambda path: path.write_bytes(b"x"), "'data-00001-of-00003.idx' has 1 bytes"),
        ("data-00003-of-00004.idx", Path.touch, "'data-00003-of-00004.idx' looks like a shard"),
    ):
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        change(tmp_path / "bad" / name)
        with pytest.raises(SourceError, match=words):
            ps.read_packed(tmp_path / "bad")
        with pytest.raises(PackError, match=words):
            packed(tmp_path / "bad")
        shutil.rmtree(tmp_path / "bad")


def life(dest: str, at: int) -> None:
    """Pack, and be killed at a step."""
    with DeadlyDisk(at).used():
        packed(Path(dest))


@pytest.mark.usefixtures("fork_server")
def test_a_packer_that_is_killed_at_any_step_ends_with_the_same_pairs_of_files(tmp_path: Path) -> None:
    with (counting := StepDisk(-1)).used():
        packed(tmp_path / "reference")
    reference = hashes(tmp_path / "reference")
    for at in range(1, counting.count, 8):
        dest = tmp_path / "dest"
        assert exit_code_of(life, str(dest), at) == -9
        with Disk().used():
            packed(dest)
        assert hashes(dest) == reference, f"step {at}"
        shutil.rmtree(dest)


def test_the_command_packs_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.jsonl").write_text("[1, 2, 3]\n[4]\n")
    (tmp_path / "tokens_for_pack.py").write_text("import numpy\n\ndef array(element):\n    return numpy.asarray(element)\n")
    arguments = ["pack", "lines.jsonl", "out", "--map=tokens_for_pack:array", "--format=megatron", "--dtype=uint16", "--num-workers=1"]
    assert main(arguments) == 0
    assert "tokens: int64[None] as uint16" in capsys.readouterr().out
    assert [one["tokens"].tolist() for one in ps.read_megatron("out/*")] == [[1, 2, 3], [4]]
