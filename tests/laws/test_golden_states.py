"""States that earlier versions saved: every later one delivers the same behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from core import core
from golden.states import FOLDER, PLANS, feed_of, is_ordered, lost, of_today, path_of, rest_of

OTHER_BATCHES = {"retry", "skip", "skip_unordered"}
"""Plans whose states were saved when Skip and ordered=False filled batches up: the same elements come in other batches."""
REPLACED = {"skip_in_shard"}
"""Those in which Skip put another element in the place of one that failed: it is left out now."""
GOLDEN = sorted(FOLDER.glob("*.json"))


def test_each_plan_has_a_state_for_each_place_and_no_state_is_without_its_plan() -> None:
    assert sorted(path_of(name, place) for name, plan in PLANS.items() for place in plan.saves) == GOLDEN


@pytest.mark.parametrize("workers", core([{"executor": "inline"}, {"executor": "threads", "num_workers": 2}]), ids=["inline", "2-workers"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_state_of_an_earlier_version_goes_on_with_the_same_elements(path: Path, workers: dict[str, Any], tmp_path: Path) -> None:
    golden = json.loads(path.read_text())
    for resume in golden["resumes"]:
        given, behind = of_today(golden["options"], resume["behind"])
        options = {key: value for key, value in given.items() if key not in ("executor", "num_workers")}
        with feed_of(golden["plan"], tmp_path, resume["arguments"], options | workers) as feed:
            feed.load_state_dict(golden["state"])
            assert (feed.step, lost(feed)) == (golden["delivered"], resume["lost_before"])
            rest, name = rest_of(feed, is_ordered(options)), golden["plan"]
            if name in REPLACED:
                assert set(numbers_in(rest)) == set(numbers_in(behind))
                assert sum(lost(feed)) == sum(resume["lost"])
                continue
            assert lost(feed) == resume["lost"]
            if name in OTHER_BATCHES:
                assert sorted(numbers_in(rest)) == sorted(numbers_in(behind))
            else:
                assert (rest, feed.step) == (behind, resume["step"])


def numbers_in(items: Any) -> list[int]:
    """Return the numbers of batches as JSON has them, or of their elements."""
    return [number for item in items for number in (item["values"] if isinstance(item, dict) else [item])]
