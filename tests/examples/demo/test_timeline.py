"""The picture of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.errors import MissingExtra
from timeline import Lane, draw, require_matplotlib


def lane(*, wait_s: float, ready: bool) -> Lane:
    steps = tuple(((0.1 + wait_s) * number + wait_s, (0.1 + wait_s) * number + wait_s + 0.1) for number in range(30))
    return Lane(title="a loop", steps=steps, ready=[(start, 3) for start, _ in steps] if ready else [], total_s=steps[-1][1])


def test_waits_are_what_lies_between_the_steps_and_before_the_first() -> None:
    run = Lane(title="a loop", steps=[(0.5, 1.0), (1.0, 1.5), (2.0, 2.5)], ready=[], total_s=2.5)
    assert run.waits == [(0.0, 0.5), (1.5, 2.0)]
    assert run.busy_share == pytest.approx(0.6)


def test_a_run_without_time_was_not_busy() -> None:
    assert Lane(title="empty", steps=[], ready=[], total_s=0.0).busy_share == 0.0


@pytest.fixture(scope="module")
def matplotlib_with_its_fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Draw once before the leak audit looks: matplotlib keeps the font files of its first picture open for ever."""
    pytest.importorskip("matplotlib")
    draw(tmp_path_factory.mktemp("fonts") / "first.png", [lane(wait_s=0.1, ready=True)], title="fonts")


@pytest.mark.usefixtures("matplotlib_with_its_fonts")
def test_two_runs_become_one_small_png(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    draw(path, [lane(wait_s=0.15, ready=False), lane(wait_s=0.0, ready=True)], title="before and after", window_s=2.0)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 10_000 < len(data) < 150_000
    assert int.from_bytes(data[16:20], "big") == 1050


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtra) as caught:
        require_matplotlib()
    assert "matplotlib is not installed" in caught.value.what
    assert "drawing the timeline" in caught.value.where
    assert caught.value.fix == 'pip install "penstock[demo]"'
