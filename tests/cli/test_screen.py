"""What the commands print fits 100 columns and any encoding."""

from __future__ import annotations

import io

import pytest

from penstock.cli.screen import COLUMNS, Screen, percent, seconds


def printed(*, encoding: str = "utf-8") -> tuple[Screen, io.BytesIO]:
    raw = io.BytesIO()
    return Screen(io.TextIOWrapper(raw, encoding=encoding, write_through=True)), raw


def test_long_facts_are_wrapped_under_themselves() -> None:
    screen, raw = printed()
    screen.fact("files", "word " * 60)
    lines = raw.getvalue().decode().splitlines()
    assert len(lines) > 2
    assert all(len(line) <= COLUMNS for line in lines)
    assert lines[0].startswith("   files          word")
    assert lines[1].startswith(" " * 18 + "word")


def test_points_of_a_list_are_wrapped_under_themselves() -> None:
    screen, raw = printed()
    screen.point("word " * 40)
    lines = raw.getvalue().decode().splitlines()
    assert lines[0].startswith("   - word")
    assert lines[1].startswith("     word")


def test_a_bar_shows_its_two_shares() -> None:
    screen, raw = printed()
    screen.bar("in-line", "8.0 s", 0.5, 0.25)
    line = raw.getvalue().decode()
    assert line.count("█") == 17
    assert line.count("░") == 9
    assert line.endswith("8.0 s\n")


def test_bars_of_a_plain_terminal_use_plain_characters() -> None:
    screen, raw = printed(encoding="ascii")
    screen.bar("inline", "8.0 s", 0.5, 0.5)
    assert raw.getvalue().count(b"#") == 17
    assert raw.getvalue().count(b"-") == 17


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.0 %"), (0.0123, "1.2 %"), (0.5, "50 %"), (0.9984, "99.8 %"), (1.0, "100.0 %")])
def test_shares_have_a_decimal_where_it_matters(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("value", "text"), [(0.0012, "1.2 ms"), (0.065, "65 ms"), (1.26, "1.3 s"), (75.0, "75.0 s")])
def test_times_have_a_unit_that_suits_them(value: float, text: str) -> None:
    assert seconds(value) == text
