"""Every input of the fuzzers' corpora ends in a result or in a documented error."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
NAMES = sorted(path.stem for path in FUZZ.glob("*.py") if path.stem != "running")


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_gives_results_or_documented_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FUZZ))
    one_input = runpy.run_path(str(FUZZ / f"{name}.py"))["one_input"]
    inputs = sorted((FUZZ / "corpus" / name).iterdir())
    assert inputs, "a fuzzer without a corpus replays nothing"
    for path in inputs:
        one_input(path.read_bytes())
