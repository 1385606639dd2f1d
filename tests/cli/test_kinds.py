from __future__ import annotations

import pytest

from penstock.cli.indexing import KINDS, format_for
from penstock.errors import PlanError
from penstock.sources.records import RecordFormat


def test_every_kind_makes_a_format_of_its_name() -> None:
    for kind in KINDS:
        assert isinstance(kind.make(), RecordFormat)
        assert format_for(kind.make.kind, "whatever", "x") is kind


@pytest.mark.parametrize("path", ["a.txt", "A.TXT", "dir.x/b.log", "train.txt-00003-of-00010"])
def test_the_name_of_a_file_says_its_format(path: str) -> None:
    assert format_for(None, path, "x").make.kind == "text"


@pytest.mark.parametrize("path", ["a", "txt", "a.txt.zst", "x.txt/data"])
def test_a_name_that_says_nothing_is_refused(path: str) -> None:
    with pytest.raises(PlanError) as caught:
        format_for(None, path, "penstock index")
    assert "--format" in caught.value.fix
