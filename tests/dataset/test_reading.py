"""The functions that open files of lines and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError, SourceError


def test_windows_of_tokens_are_inputs_and_targets(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    dataset = ps.read_tokens(tmp_path / "train.bin", 10, dtype=np.uint16)
    assert len(dataset) == 99
    assert dataset[3]["tokens"].tolist() == list(range(30, 41))
    batches = list(dataset.shuffle(seed=1).batch(9))
    targets = np.concatenate([batch["tokens"][:, 1:] for batch in batches])
    assert sorted(targets.ravel().tolist()) == list(range(1, 991))
    assert len(ps.read_tokens(tmp_path / "train.bin", np.int64(10), dtype="uint16", stride=1)) == 990


@pytest.mark.parametrize("argument", ["length", "stride", "vocab_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, 2**31])
def test_numbers_out_of_range_are_refused(tmp_path: Path, argument: str, value: Any) -> None:
    options: dict[str, Any] = {"length": 4, argument: value}
    with pytest.raises(PlanError, match=f"{argument}={value}"):
        ps.read_tokens(tmp_path / "a.npy", **options)


def test_lines_values_and_records_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('["x"]\n["y"]\n')
    assert ps.read_text(tmp_path / "a")[1] == {"text": '["y"]'}
    assert ps.read_jsonl(tmp_path / "a")[1] == ["y"]
    assert ps.read_csv(tmp_path / "a", names=["n"], quote="'")[1] == {"n": '["y"]'}


@pytest.mark.parametrize("function", [ps.read_text, ps.read_jsonl, ps.read_csv])
def test_a_limit_of_no_bytes_and_a_missing_file_are_refused(tmp_path: Path, function: Any) -> None:
    with pytest.raises(PlanError, match="max_line_bytes=0"):
        function(tmp_path / "absent", max_line_bytes=0)
    with pytest.raises(SourceError, match="no file matches"):
        function(tmp_path / "absent")


@pytest.mark.parametrize(("function", "argument"), [(ps.read_text, "skip_blank"), (ps.read_jsonl, "allow_nan")])
def test_a_flag_in_words_is_refused(function: Any, argument: str) -> None:
    with pytest.raises(PlanError, match=f"{argument}='no' is neither True nor False"):
        function("absent", **{argument: "no"})
