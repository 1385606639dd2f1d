"""Documents packed as tokens: the bytes, Megatron-LM's index beside them, and what a kill leaves of the two files of a shard."""

from __future__ import annotations

import ast
import re
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
from penstock.packing.inspect import inspect

COUNT = 90


def tokenised(number: int) -> Any:
    """Make a document of 0 to 6 tokens."""
    return np.arange(number, number + number % 7)


def as_uint16(number: int) -> dict[str, Any]:
    return {"ids": tokenised(number).astype(np.uint16)}


def has_any(tokens: Any) -> bool:
    return len(tokens) > 0


DOCUMENTS = ps.from_source(range(COUNT)).map(tokenised)
WANTED = [tokenised(number).tolist() for number in range(COUNT)]


def packed(dest: Path, ds: ps.Dataset = DOCUMENTS, **options: Any) -> Any:
    return ps.pack(ds, dest, **{"format": "megatron", "executor": "threads", "num_workers": 1, "num_shards": 3, **options})


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_shards_hold_the_tokens_and_the_index_of_their_documents(tmp_path: Path, executor: str) -> None:
    manifest = packed(tmp_path, executor=executor, num_workers=2)
    for number, path in enumerate(map(Path, manifest.files())):
        shard = WANTED[number * 30 : number * 30 + 30]
        assert path.read_bytes() == b"".join(np.array(one, "<i4").tobytes() for one in shard)
        assert path.with_suffix(".idx").read_bytes() == index_of([*map(len, shard)], [*range(31)], 4, 4)
    assert [one["tokens"].tolist() for one in ps.read_megatron(tmp_path / "*")] == WANTED
    assert [one.tolist() for one in ps.read_packed(tmp_path)] == WANTED


def test_tokens_alone_are_read_as_windows(tmp_path: Path) -> None:
    packed(tmp_path, format="tokens", dtype=np.dtype("uint16"), num_shards=2)
    with pytest.raises(PlanError, match="nothing says where a document ends") as caught:
        ps.read_packed(tmp_path)
    pattern, dtype = re.fullmatch(r"read windows: ps\.read_tokens\((.*), length, (.*)\)", caught.value.fix).groups()  # type: ignore[union-attr]
    assert dtype == "dtype=np.uint16"
    first, second = ps.read_tokens(ast.literal_eval(pattern), 128, dtype=np.uint16)
    tokens = [token for one in WANTED for token in one]
    assert (first["tokens"].tolist(), second["tokens"].tolist()) == (tokens[:129], tokens[129:258])


def test_the_dtype_in_the_file_follows_from_the_elements_or_is_given(tmp_path: Path) -> None:
    narrow = ps.from_source(range(COUNT)).map(as_uint16)
    for number, (ds, dtype, stored) in enumerate([(narrow, None, "uint16"), (DOCUMENTS, None, "int32"), (narrow, "int32", "int32")]):
        assert packed(tmp_path / str(number), ds, dtype=dtype).columns[0].words().endswith(f" as {stored}")
    assert ps.read_packed(tmp_path / "2")[8]["ids"].dtype == np.uint16


@pytest.mark.parametrize(("token", "dtype"), [(1 << 16, "uint16"), (1 << 31, "int32"), (-1, "uint16")])
def test_a_token_that_the_dtype_does_not_hold_is_an_error_of_its_element(tmp_path: Path, token: int, dtype: str) -> None:
    manifest = packed(tmp_path, ps.from_source([np.arange(3), np.array([token])] * 50), dtype=dtype, on_error=ps.Skip())
    assert (len(manifest), manifest.skipped[0]["key"]) == (50, [[0, 1, 0]])
    assert f"token {token} is beyond {dtype}" in manifest.skipped[0]["text"]


@pytest.mark.parametrize("element", [{"a": np.arange(3), "b": np.arange(3)}, np.zeros(3), b"abc"])
def test_other_elements_than_documents_are_refused(tmp_path: Path, element: Any) -> None:
    with pytest.raises(SpecError, match="a document of tokens is one array of integers, of one dimension"):
        packed(tmp_path, ps.from_source([element]))


@pytest.mark.parametrize("of", [ps.from_source, ps.from_generator])
def test_an_empty_array_of_any_dtype_is_an_empty_document(tmp_path: Path, of: Any) -> None:
    documents = [np.array([]), np.arange(3), np.array([])]
    packed(tmp_path, of(documents if of is ps.from_source else documents.__iter__), num_shards=None)
    assert [one.tolist() for one in ps.read_packed(tmp_path)] == [[], [0, 1, 2], []]


def test_a_stream_becomes_pairs_of_files_too(tmp_path: Path) -> None:
    stream = DOCUMENTS.filter(has_any).take(50)
    assert len(packed(tmp_path, stream, num_shards=None, shard_bytes=200).shards) > 2
    assert [one["tokens"].tolist() for one in ps.read_megatron(tmp_path / "data*")] == [*filter(None, WANTED)][:50]
    assert packed(tmp_path, stream, num_shards=None, shard_bytes=200).was_there


def test_an_index_that_is_lost_changed_or_too_many_is_found(tmp_path: Path) -> None:
    packed(tmp_path / "good")
    for name, change, words in (
        ("1-of-00003.idx", Path.unlink, "1-of-00003.idx' is missing"),
        ("1-of-00003.idx", lambda path: path.write_bytes(b"x"), "1-of-00003.idx' has 1 bytes"),
        ("3-of-00004.idx", Path.touch, "3-of-00004.idx' looks like a shard"),
    ):
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        change(tmp_path / f"bad/data-0000{name}")
        with pytest.raises(SourceError, match=words):
            ps.read_packed(tmp_path / "bad")
        with pytest.raises(PackError, match=words):
            packed(tmp_path / "bad")
        shutil.rmtree(tmp_path / "bad")


def test_a_shard_alone_is_inspected_by_its_manifest(tmp_path: Path) -> None:
    path = Path(packed(tmp_path).files()[1])
    (report,) = inspect(path, verify=True)
    assert (report.count, report.problems, report.remarks) == (30, [], ["verified: the SHA-256 of the manifest"])
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    assert "SHA-256 differs" in inspect(path, verify=True)[0].problems[0]


def life(dest: str, at: int, fmt: str) -> None:
    """Pack, and be killed at a step."""
    with DeadlyDisk(at).used():
        packed(Path(dest), format=fmt, measure={"length": len})


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize(("fmt", "step"), [("megatron", 11), ("decoded", 17)])
def test_a_packer_that_is_killed_at_any_step_ends_with_the_same_pairs_of_files(tmp_path: Path, fmt: str, step: int) -> None:
    with (counting := StepDisk(-1)).used():
        packed(tmp_path / "reference", format=fmt, measure={"length": len})
    for at in range(1, counting.count, step):
        assert exit_code_of(life, str(tmp_path / "dest"), at, fmt) == -9
        with Disk().used():
            packed(tmp_path / "dest", format=fmt, measure={"length": len})
        assert hashes(tmp_path / "dest") == hashes(tmp_path / "reference"), f"step {at}"
        shutil.rmtree(tmp_path / "dest")


def test_the_command_packs_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.jsonl").write_text("[1, 2, 3]\n[4]\n")
    Path("tokens_for_pack.py").write_text("import numpy\n\ndef array(element):\n    return numpy.asarray(element)\n")
    assert (
        main(["pack", "lines.jsonl", "out", "--map=tokens_for_pack:array", "--format=megatron", "--dtype=uint16", "--num-workers=1"]) == 0
    )
    assert Path("out/data-00000-of-00001.bin").read_bytes() == np.array([1, 2, 3, 4], "<u2").tobytes()
