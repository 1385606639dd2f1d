from __future__ import annotations

import pytest

from penstock._storage import urls
from penstock._storage.urls import MOST_NAMES, expand, missing_shards
from penstock.errors import PlanError


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.txt", ["a.txt"]),
        ("t-{000..002}.tar", ["t-000.tar", "t-001.tar", "t-002.tar"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..9..4}", ["0", "4", "8"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{train,val}-{0..1}.x", ["train-0.x", "train-1.x", "val-0.x", "val-1.x"]),
        ("a{,b}", ["a", "ab"]),
        ("50%{}", ["50%{}"]),
        ("{one}", ["{one}"]),
        ("{a..b}", ["{a..b}"]),
        ("{{1,2}", ["{1", "{2"]),
        ("$(touch x)", ["$(touch x)"]),
        ("name@2", ["name-00000-of-00002", "name-00001-of-00002"]),
        ("x.tfrecord@*", ["x.tfrecord-*-of-*"]),
        ("{a,b}@1", ["a-00000-of-00001", "b-00000-of-00001"]),
        ("me@home", ["me@home"]),
        ("s3://b/t-{0..1}.tar", ["s3://b/t-0.tar", "s3://b/t-1.tar"]),
    ],
)
def test_patterns_stand_for_these_names(pattern: str, names: list[str]) -> None:
    assert expand(pattern, "read_x") == names


@pytest.mark.parametrize(
    "pattern",
    ["{000000..999999999}", "{0..999}{0..999}{0..1}", "x@1000001", "{1..999999999999999999}", "{0..1}" * 64, "x@999999999999999999"],
)
def test_patterns_for_too_many_names_are_refused_before_one_is_made(pattern: str) -> None:
    with pytest.raises(PlanError) as caught:
        expand(pattern, "read_x")
    assert f"{MOST_NAMES} at most" in caught.value.what
    assert caught.value.where == "read_x"


def test_a_set_of_no_shards_is_refused() -> None:
    with pytest.raises(PlanError, match="names no shard"):
        expand("x@0", "read_x")


@pytest.mark.parametrize("pattern", ["pipe:curl http://x", "PIPE:ls", "file:/etc/passwd", "file:///etc/passwd"])
def test_commands_and_file_urls_are_refused_by_name(pattern: str) -> None:
    with pytest.raises(PlanError, match="never run or opened") as caught:
        expand(pattern, "read_x")
    assert "./" in caught.value.fix


def test_missing_shards_are_named_once_per_set() -> None:
    names = ["t-00000-of-00003", "t-00002-of-00003", "v-0-of-2.tar", "v-1-of-2.tar", "other", "w-1-of-9"]
    assert list(missing_shards(names)) == ["t-00001-of-00003", "w-0-of-9"]
    assert list(missing_shards(["t-00000-of-00002"])) == ["t-00001-of-00002"]
    assert list(missing_shards(["t-0-of-99999999999999999999"])) == ["t-1-of-99999999999999999999"]


@pytest.mark.parametrize("pattern", ["x{0..9}@101", "x{0..99}@99", "x@{1..99}"])
def test_braces_times_shards_have_the_same_limit(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "MOST_NAMES", 1000)
    with pytest.raises(PlanError, match="1000 at most"):
        expand(pattern, "read_x")
    assert len(expand("x{0..9}@100", "read_x")) == 1000
