from __future__ import annotations

import time
from typing import Any

import pytest
from testing.breaking import assert_broken

from penstock.sources import IndexableSource
from penstock.testing.source import as_source, check_fingerprint, check_names


class Named(IndexableSource):
    """A list that says of itself what it is told to; a list of sayings is said one after the other."""

    def __init__(self, label: Any = "label", describe: Any = "element", fingerprint: Any = None) -> None:
        super().__init__([1, 2])
        self.says = {"label": label, "describe": describe, "fingerprint": fingerprint or {"count": 2}}

    def _say(self, name: str) -> Any:
        said = self.says[name]
        return said.pop(0) if isinstance(said, list) else said

    def label(self) -> Any:
        return self._say("label")

    def describe(self, index: int) -> Any:
        return self._say("describe")

    def fingerprint(self) -> Any:
        return self._say("fingerprint")


def test_good_names_and_fingerprints_pass() -> None:
    check_names(Named(), "here", range(2))
    check_fingerprint(
        Named(fingerprint={"a": [1, {"b": "c"}], "d": None, "e": True, "f": 1.5}), "here", Named().says["fingerprint"].copy and None
    )
    check_fingerprint(IndexableSource([1]), "here", lambda: [1])


@pytest.mark.parametrize(
    ("kwargs", "what", "fix"),
    [
        ({"label": "two\nlines"}, "label() is 'two\\nlines'", "one line of text"),
        ({"label": ""}, "label() is ''", "one line of text"),
        ({"label": 5}, "label() is 5", "one line of text"),
        ({"label": "<X object at 0x7f0011223344>"}, "label() is '<X object at", "without the address"),
        ({"label": ["one", "other"]}, "label() is 'one' and then 'other'", "the same text each time"),
        ({"describe": "0xdeadbeef99"}, "describe(0) is '0xdeadbeef99'", "without the address"),
    ],
)
def test_a_name_that_is_no_stable_line_is_named(kwargs: Any, what: str, fix: str) -> None:
    assert_broken(lambda: check_names(Named(**kwargs), "here", range(2)), what, "here", fix)


@pytest.mark.parametrize(
    ("fingerprint", "what", "fix"),
    [
        ({"x": {1, 2}}, "{'x': {1, 2}} is no JSON record", "a dict of text"),
        ({"x": float("nan")}, "{'x': nan} is no JSON record", "a dict of text"),
        ("text", "'text' is no JSON record", "a dict of text"),
        ({"x": "y" * 70_000}, "it has 70009 characters", "hash what is long"),
        ({"x": ["<X at 0x7f0011223344>"]}, "['x'][0] holds an address", "leave out `repr`"),
        ({"x": int(time.time())}, "['x'] is a time stamp", "a copy is the same data"),
        ({"x": {"y": time.time_ns()}}, "['x']['y'] is a time stamp", "a copy is the same data"),
        ([{"x": 1}, {"x": 2}, {"x": 2}], "x is 1, and the second time 2", "the data alone"),
    ],
)
def test_a_fingerprint_that_a_state_cannot_trust_is_named(fingerprint: Any, what: str, fix: str) -> None:
    if isinstance(fingerprint, list):
        fingerprint = list(fingerprint)
    assert_broken(lambda: check_fingerprint(Named(fingerprint=fingerprint), "here", None), what, "here, fingerprint()", fix)


def test_a_source_made_again_with_another_fingerprint_is_named() -> None:
    assert_broken(
        lambda: check_fingerprint(Named(fingerprint={"id": 1}), "here", lambda: Named(fingerprint={"id": 2})),
        "id is 1, and of the source made again 2",
        "here, fingerprint()",
        "in another process",
    )


def test_an_old_time_and_a_check_sum_are_no_time_stamps() -> None:
    check_fingerprint(Named(fingerprint={"crc32": 123456789, "old": time.time() - 10**6, "flag": True}), "here", None)


def test_any_object_becomes_a_source() -> None:
    named = Named()
    assert as_source(named) is named
    assert len(as_source([1, 2])) == 2  # type: ignore[arg-type]
