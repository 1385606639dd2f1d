"""What is kept of the feeds of a run, and how it is told."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from penstock.observe.doctor import FeedWatch
from penstock.observe.stats import watchers


def test_feeds_of_one_plan_are_one_report_and_others_stay_apart() -> None:
    with FeedWatch() as watch:
        for count in (4, 8):
            for _ in ps.from_source(range(40)).map(str).batch(count).feed():
                pass
        for _ in ps.from_source(range(40)).map(str).batch(8).feed():
            pass
        report = watch.report(["train.py"], 3)
    for _ in ps.from_source(range(3)).feed():  # behind the block
        pass
    assert watchers() == []
    assert [(feed.plan[-1], feed.num_feeds, feed.num_batches) for feed in report.feeds] == [("batch(4)", 1, 10), ("batch(8)", 2, 10)]
    assert (report.script, report.status) == (("train.py",), 3)
    text = "\n".join(report.lines())
    assert "feed 2: from_source(range, 40 elements) > map(str) > batch(8) (2 feeds, 10 batches; the longest feed:)" in text
    assert all(len(line) <= 110 for line in text.splitlines())
    assert "stage:  read+str+batch" in text or "stage:  read+str" in text
    assert json.loads(json.dumps(report.as_json(), allow_nan=False))["feeds"][1]["stats"]["consumer"]["num_batches"] == 5


def test_a_run_without_feeds_says_so() -> None:
    with FeedWatch() as watch:
        ps.from_source(range(3)).feed().close()
        report = watch.report(["train.py"], 0)
    assert [*report.lines()][1:] == ["No feed of Penstock delivered anything."]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["a.py", "--token", "t", "x"], ("a.py", "--token", "[removed]", "x")),
        (["a.py", "--token=t"], ("a.py", "--token=[removed]")),
        (["a.py", "--lr", "3"], ("a.py", "--lr", "3")),
    ],
)
def test_secrets_among_the_arguments_are_removed(given: list[str], shown: tuple[str, ...]) -> None:
    with FeedWatch() as watch:
        assert watch.report(given, 0).script == shown
