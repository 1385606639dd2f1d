"""Objects of other libraries that threads must not share: each worker thread has a copy, or a notice says why not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

THREADS: dict[str, Any] = {"executor": "threads", "num_workers": 4}
LINES = [" ".join(f"w{(line * 7 + word) % 50}" for word in range(5 + line % 40)) for line in range(1200)]
OURS = (
    "each worker thread has a copy of its own; num_workers=N, without executor=, gives worker processes a copy each, and neither makes one "
    "call at a time"
)

tokenizer: Any = None


def tokenizer_of(folder: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, **{f"w{n}": n + 2 for n in range(50)}}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), unk_token="[UNK]", pad_token="[PAD]")


def two_lengths(tok: Any, line: str) -> list[int]:
    title = tok(line, max_length=8, truncation=True, padding="max_length")["input_ids"]
    text = tok(line, max_length=32, truncation=True, padding="max_length")["input_ids"]
    return [*title, *text]


def with_global(line: str) -> list[int]:
    return two_lengths(tokenizer, line)


class Lines:
    """A dataset that holds its tokenizer."""

    def __init__(self, tok: Any) -> None:
        self.tok = tok
        self.me = self

    def __len__(self) -> int:
        return len(LINES)

    def __getitem__(self, index: int) -> list[int]:
        return two_lengths(self.tok, LINES[index])

    def __call__(self, line: str) -> list[int]:
        return two_lengths(self.me.tok, line)


def run(dataset: ps.Dataset, **options: Any) -> tuple[list[Any], list[str]]:
    with dataset.feed(**options) as feed:
        found = list(feed)
    return found, [notice for notice in feed.stats().notices if "safe between threads" in notice]


def num_wrong(found: list[Any], wanted: list[Any]) -> int:
    return sum(one != other for one, other in zip(found, wanted, strict=True))


@pytest.fixture
def tok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = tokenizer_of(tmp_path)
    monkeypatch.setitem(globals(), "tokenizer", made)
    return made


def closed(tok: Any) -> Any:
    return lambda line: two_lengths(tok, line)


HOLDERS = {
    "closure": (closed, "variable `tok` of function `closed.<locals>.<lambda>`"),
    "global": (lambda tok: with_global, "global `tokenizer` of function `with_global`"),
    "callable object": (Lines, "`self.tok` of Lines"),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_tokenizer_that_is_called_with_two_lengths_spoils_no_element(name: str, tok: Any) -> None:
    make, words = HOLDERS[name]
    wanted = [two_lengths(tok, line) for line in LINES]
    dataset = ps.from_source(LINES).map(make(tok))
    found, told = run(dataset, **THREADS)
    assert num_wrong(found, wanted) == 0
    kind = type(tok).__name__
    assert told == [f"transformers.{kind} ({words}): not safe between threads, so {OURS}"]
    found, told = run(dataset)
    assert (num_wrong(found, wanted), told) == (0, [])


def test_a_dataset_that_holds_one_and_workers_of_its_own_have_copies_too(tok: Any) -> None:
    wanted = [two_lengths(tok, line) for line in LINES]
    for dataset, options in (
        (ps.from_source(Lines(tok)), THREADS),
        (ps.from_source(LINES).map(closed(tok), concurrency=4), {}),
        (ps.from_source(LINES).map(closed(tok), concurrency=4), {"executor": "processes", "num_workers": 2}),
    ):
        found, told = run(dataset, **options)
        assert num_wrong(found, wanted) == 0
        assert len(told) == 1


def test_copies_are_made_once_for_a_feed_and_what_else_a_function_holds_is_shared(tok: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    kind, seen = type(tok), []

    def noted(self: Any, memo: Any) -> Any:
        copied.append(1)
        monkeypatch.delattr(kind, "__deepcopy__")
        try:
            return copy.deepcopy(self)
        finally:
            monkeypatch.setattr(kind, "__deepcopy__", noted, raising=False)

    monkeypatch.setattr(kind, "__deepcopy__", noted, raising=False)

    def counted(line: str) -> int:
        seen.append(line)
        return len(tok(line)["input_ids"])

    with ps.from_source(LINES).map(counted).feed(executor="threads", num_workers=2) as feed:
        for _ in range(3):
            assert len(list(feed)) == 1200
    assert len(copied) == 2
    assert len(seen) == 3600
    assert len([notice for notice in feed.stats().notices if "safe between threads" in notice]) == 1


def test_the_race_is_found_by_verify_where_threads_share_the_tokenizer(tok: Any) -> None:
    def hidden(line: str) -> list[int]:
        return two_lengths(hidden.__dict__["held"][0], line)

    hidden.__dict__["held"] = [tok] * 100  # too long to be looked into
    wanted = [two_lengths(tok, line) for line in LINES]
    wrong = 0
    for _ in range(20):  # a race does not come each time
        found, told = run(ps.from_source(LINES).map(hidden), **THREADS)
        assert told == []
        wrong += num_wrong(found, wanted)
        try:
            found, _ = run(ps.from_source(LINES).map(hidden), **{**THREADS, "executor": ps.Threads(verify=1.0)})
        except ps.errors.NotRepeatable as error:
            words = str(error)
            break
        assert num_wrong(found, wanted) == 0
    assert wrong
    assert "hidden' was computed twice for one element, the second time alone, and did not give the same: the result was int64[" in words


def test_copies_of_albumentations_draw_other_numbers_and_spoil_no_mask() -> None:
    albumentations = pytest.importorskip("albumentations", reason="albumentations is not installed")
    crop = albumentations.Compose([albumentations.RandomCrop(8, 8), albumentations.HorizontalFlip()], seed=7)
    image = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    places = np.arange(32 * 32, dtype=np.int32).reshape(32, 32)
    images = np.repeat(places[:, :, None], 3, axis=2).astype(np.float32)

    def cropped(number: int) -> dict[str, Any]:
        out = crop(image=images, mask=places)
        return {"wrong": not np.array_equal(out["image"][:, :, 0], out["mask"]), "at": int(out["mask"].min())}

    assert image.dtype == np.uint8
    found, told = run(ps.from_source(range(400)).map(cropped), **THREADS)
    assert sum(one["wrong"] for one in found) == 0
    assert told == [f"albumentations.Compose (variable `crop` of function `{cropped.__qualname__}`): not safe between threads, so {OURS}"]
    assert len({one["at"] for one in found}) > 100


def test_an_open_h5py_file_and_an_open_file_are_named_and_stay(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(20)
        rows = file["x"]
        (tmp_path / "b").write_bytes(b"ab")
        with open(tmp_path / "b", "rb") as other:

            def read(number: int) -> int:
                other.tell()
                return int(rows[number])

            found, told = run(ps.from_source(range(20)).map(read), **THREADS)
    assert found == list(range(20))
    where = f"of function `{read.__qualname__}`"
    assert len(told) == 1
    assert told[0].startswith(
        f"io.BufferedReader (variable `other` {where}), h5py.Dataset (variable `rows` {where}): not safe between threads, and "
        "threads share it, for it "
    )
