"""The pictures of the pages: each is made by a script, small, and shown somewhere."""

from __future__ import annotations

import re

import pytest

from findings import ROOT
from pictures import MOST_BYTES, PICTURES, main

IMAGES = ROOT / "docs" / "images"
NOT_BY_THE_SCRIPT = {"demo.png", "how-it-works.svg", "what-runs-where.svg"}
"""What `make demo` draws."""


def test_every_picture_is_made_by_the_script_or_the_demo_or_drawn_by_hand_and_is_small() -> None:
    there = {path.name: path.stat().st_size for path in IMAGES.iterdir()}
    assert there.keys() == {f"{name}.png" for name in PICTURES} | NOT_BY_THE_SCRIPT
    least = {name: 1_000 if name.endswith(".svg") else 5_000 for name in there}  # a drawing of lines and words is small
    assert [name for name, size in there.items() if not least[name] < size <= MOST_BYTES] == []


def test_every_picture_stands_on_a_page_with_words_for_who_cannot_see_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = [found for page in pages for found in re.findall(r"!\[(.*?)\]\((?:docs/)?images/(.*?)\)", page.read_text(encoding="utf-8"))]
    assert {name for _, name in shown} == {path.name for path in IMAGES.iterdir()}
    assert [name for words, name in shown if len(words) < 30] == []


def test_a_picture_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["none"])
    assert "there is no picture none" in capsys.readouterr().err
