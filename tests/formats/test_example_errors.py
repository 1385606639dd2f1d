"""The words for every fault that a parser reports."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.formats.example import record_error, wire_error
from penstock.kernels.wire import WireFault, WireProblem


@pytest.mark.parametrize("fault", list(WireProblem))
def test_every_fault_has_words_a_place_and_a_remedy(fault: WireProblem) -> None:
    error = record_error(fault, 12, 3, "label", ps.FixedLenFeature((2,), "float32"))
    assert len(error.what) > 20
    assert "'label'" in error.where
    assert error.fix
    assert "byte 12" in record_error(fault, 12, 3, None, None).where or fault == WireProblem.MISSING


def test_a_name_that_is_no_text_is_shown_all_the_same() -> None:
    assert "feature '\\\\xff'" in wire_error(WireFault(WireProblem.VARINT, 3, name=b"\xff")).where
