from __future__ import annotations

import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock._workers.sharing import OwnCopies, Survey


class Tokenizer:
    """Stands for a class of the library by its module and name alone."""

    def __init__(self) -> None:
        self.user: int | None = None
        self.copied_from: Any = None

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self)()
        made.copied_from = self
        return made

    def length(self, text: str) -> int:
        return len(text)


class Stubborn(Tokenizer):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no")


def known(kind: type[Tokenizer] = Tokenizer) -> Any:
    return type("PreTrainedTokenizerBase", (kind,), {"__module__": "transformers.tokenization"})()


tokenizer = known()
total = 0


def helper(text: str) -> Any:
    return tokenizer


def by_helper(text: str) -> Any:
    return helper(text)


def own(function: Any) -> Any:
    """Return what a worker thread calls in the place of a function."""
    survey, copies = Survey([function]), OwnCopies(0)
    assert len(survey.held) == 1
    for held in survey.held.values():
        copies.copy(held)
    copies.begin(survey.holders(survey.held))
    return copies.own(function)


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held
        self.shared: list[int] = []
        self.call = self.get  # which holds the object in turn

    def get(self, text: str) -> Any:
        return self.held

    def __call__(self, text: str) -> Any:
        return self.call(text)


def in_closure(held: Any) -> Any:
    return lambda text: held


def in_default(held: Any) -> Any:
    def function(text: str, held: Any = held) -> Any:
        return held

    return function


def in_keyword(held: Any) -> Any:
    def function(text: str, *, held: Any = held) -> Any:
        return held

    return function


def in_itself(held: Any) -> Any:
    def function(text: str) -> Any:
        return held if len(text) > 3 else function(text + text)

    return function


def first(held: Any, text: str) -> Any:
    return held


WAYS: dict[str, Any] = {
    "closure": in_closure,
    "default": in_default,
    "keyword default": in_keyword,
    "recursion": in_itself,
    "list": lambda held: in_closure_item([held], 0),
    "tuple": lambda held: in_closure_item((1, held), 1),
    "dict": lambda held: in_closure_item({"a": held}, "a"),
    "partial": lambda held: partial(first, held),
    "method": lambda held: Holder(held).get,
    "callable object": Holder,
    "function in a function": lambda held: in_closure_call(in_closure(held)),
}


def in_closure_item(container: Any, key: Any) -> Any:
    return lambda text: container[key]


def in_closure_call(function: Any) -> Any:
    return lambda text: [function(text)][0]


@pytest.mark.parametrize("way", WAYS)
def test_a_function_gets_a_copy_of_what_it_holds_wherever_that_is(way: str) -> None:
    held = known()
    function = WAYS[way](held)
    assert own(function)("abc").copied_from is held
    assert function("abc") is held


def test_a_global_is_replaced_and_all_others_are_those_of_the_module_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own(by_helper)("abc").copied_from is tokenizer

    def reads(text: str) -> Any:
        return tokenizer, total, len(text)

    mine = own(reads)
    assert (mine("abc")[0].copied_from, *mine("abc")[1:]) == (tokenizer, 0, 3)
    monkeypatch.setitem(globals(), "total", 7)
    assert mine("abc")[1:] == (7, 3)


def run(function: Any, **options: Any) -> list[str]:
    with ps.from_source(["a"] * 50).map(function).feed(**options) as feed:
        assert len(list(feed)) == 50
    return [notice for notice in feed.stats().notices if "between threads" in notice]


COPIED = (
    "transformers.PreTrainedTokenizerBase ({}): not safe between threads, so each worker thread has a copy of its own; num_workers=N, "
    "without executor=, gives worker processes a copy each, and neither makes one call at a time"
)
SHARED = (
    "{}: not safe between threads, and threads share it, for it cannot be copied: leave executor= and concurrency= out, which makes one "
    "call at a time, or open it inside the function, once for each thread or process"
)


def test_the_notice_comes_only_where_several_threads_call_the_function() -> None:
    held = known()

    def length(text: str) -> int:
        return int(held.length(text))

    told = [COPIED.format(f"variable `held` of function `{length.__qualname__}`")]
    assert run(length, executor="threads", num_workers=2) == told
    for options in ({}, {"executor": "threads", "num_workers": 1}, {"num_workers": 0}):
        assert run(length, **options) == []
    with ps.from_source(["a"] * 50).map(length, concurrency=3).feed() as feed:
        list(feed)
    assert [notice for notice in feed.stats().notices if "between threads" in notice] == told


def test_each_worker_has_a_copy_of_its_own() -> None:
    held, users = known(), dict[int, set[int]]()
    both = threading.Barrier(2)

    def length(text: str) -> int:
        if threading.get_ident() not in users.setdefault(id(held), set()):
            users[id(held)].add(threading.get_ident())
            both.wait(30)
        return 1

    with ps.from_source(["a"] * 20_000).map(length).feed(executor="threads", num_workers=2) as feed:
        assert sum(feed) == 20_000
    assert len(users) == 2
    assert id(held) not in users
    assert all(len(threads) == 1 for threads in users.values())


def stores(text: str) -> int:
    global total  # noqa: PLW0603 - what is tested
    total += len(text)
    return int(tokenizer.length(text))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (stores, "transformers.PreTrainedTokenizerBase (global `tokenizer` of function `stores`)"),
        (known(Stubborn).length, "transformers.PreTrainedTokenizerBase (the function itself)"),
    ],
    ids=["it sets globals", "no copy"],
)
def test_what_cannot_be_copied_is_shared_and_named(function: Any, words: str) -> None:
    assert run(function, executor="threads", num_workers=2) == [SHARED.format(words)]


def test_open_files_and_databases_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text", encoding="utf-8")
    with open(tmp_path / "a", encoding="utf-8") as file, open(tmp_path / "log", "w", encoding="utf-8") as log:
        base = sqlite3.connect(":memory:")

        def read(text: str) -> int:
            return len((file, log, base))

        told = run(read, executor="threads", num_workers=2)
        base.close()
    where = f"of function `{read.__qualname__}`"
    assert told == [SHARED.format(f"sqlite3.Connection (variable `base` {where}), io.TextIOWrapper (variable `file` {where})")]
