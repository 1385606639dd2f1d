from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from laws.plans import plain

import penstock as ps
from penstock.errors import PenstockError, PlanError, SourceError


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def double(x: Any) -> Any:
    return x * 2


def noisy(x: int, rng: np.random.Generator) -> int:
    return x + int(rng.integers(0, 1000)) * 1000


def endless() -> ps.Dataset:
    return numbers(3).repeat()


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(4)))


LATER = "put it below the filter, flat_map or generator"
POSITIONS = "needs positions that are known before reading, but a filter, flat_map, unbatch or generator stands below it"

WRONG: list[tuple[str, Callable[[], Any], str, str, str]] = [
    ("map without a function", lambda: numbers(3).map(3), "3 is not callable", "map()", "a function that takes one element"),  # type: ignore[arg-type]
    ("map with concurrency 0", lambda: numbers(3).map(double, concurrency=0), "concurrency=0", "map()", "whole number >= 1"),
    ("map with a negative seed", lambda: numbers(3).map(double, seed=-1), "seed=-1 is not a whole number >= 0", "map()", "seed"),
    ("map with a seed of 65 bits", lambda: numbers(3).map(double, seed=2**64), "does not fit 64 bits", "map()", "below 2**64"),
    ("enumerate from a fraction", lambda: numbers(3).enumerate(1.5), "start=1.5 is not a whole number", "enumerate()", "start"),  # type: ignore[arg-type]
    ("shuffle in a window of 0", lambda: numbers(3).shuffle(0), "buffer_size=0 is not a whole number >= 1", "shuffle()", "buffer_size"),
    ("shuffle with a word", lambda: numbers(3).shuffle(seed="x"), "seed='x' is not a whole number", "shuffle()", "seed"),  # type: ignore[arg-type]
    ("shuffle behind a filter", lambda: numbers(3).filter(double).shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of a generator", lambda: generated().shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of an endless dataset", lambda: endless().shuffle(), "shuffle of an endless dataset", "shuffle()", "then repeat()"),
    ("shard of 0", lambda: numbers(3).shard(0, 0), "num_shards=0 is not a whole number >= 1", "shard()", "num_shards"),
    ("shard -1", lambda: numbers(3).shard(2, -1), "index=-1 is not a whole number >= 0", "shard()", "index"),
    ("shard 2 of 2", lambda: numbers(3).shard(2, 2), "index=2 of num_shards=2", "shard()", "an index in 0..1"),
    ("take -1", lambda: numbers(3).take(-1), "count=-1 is not a whole number >= 0", "take()", "count"),
    ("take True", lambda: numbers(3).take(True), "count=True is not a whole number >= 0", "take()", "count"),
    ("skip a word", lambda: numbers(3).skip("1"), "count='1' is not a whole number >= 0", "skip()", "count"),  # type: ignore[arg-type]
    ("repeat 0", lambda: numbers(3).repeat(0), "count=0 is not a whole number >= 1", "repeat()", "count"),
    ("repeat beyond 63 bits", lambda: numbers(3).repeat(2**62), "more than 2**63", "repeat()", "repeat() without a count"),
    ("concatenate a list", lambda: numbers(3).concatenate([1]), "[1] is not a Dataset", "concatenate()", "ps.from_source"),  # type: ignore[arg-type]
    ("concatenate a generator", lambda: numbers(3).concatenate(generated()), f"concatenate {POSITIONS}", "concatenate()", LATER),
    ("concatenate behind endless", lambda: endless().concatenate(numbers(1)), "of an endless dataset", "concatenate()", "dataset last"),
    ("zip with a list", lambda: numbers(3).zip([1]), "[1] is not a Dataset", "zip()", "ps.from_source"),  # type: ignore[arg-type]
    ("zip with a filter", lambda: numbers(3).zip(numbers(3).filter(double)), f"zip {POSITIONS}", "zip()", LATER),
    (
        "zip of a branch with workers",
        lambda: numbers(3).zip(numbers(3).map(double, concurrency=2)),
        "concurrency= has no effect inside a branch of zip",
        "below zip()",
        "a map above the zip",
    ),
    ("filter without a function", lambda: numbers(3).filter(None), "None is not callable", "filter()", "takes one element"),  # type: ignore[arg-type]
    ("flat_map without a function", lambda: numbers(3).flat_map([]), "[] is not callable", "flat_map()", "takes one element"),  # type: ignore[arg-type]
    ("batch 0", lambda: numbers(3).batch(0), "batch_size=0 is not a whole number >= 1", "batch()", "batch_size"),
    ("padded_batch 0", lambda: numbers(3).padded_batch(0), "batch_size=0 is not a whole number", "padded_batch()", "batch_size"),
    ("prefetch -1", lambda: numbers(3).prefetch(-1), "buffer_size=-1 is not a whole number >= 0", "prefetch()", "buffer_size"),
    ("an unknown option", lambda: numbers(3).with_options(threads=3), "there is no option 'threads'", "feed options", "num_workers"),
    ("an index behind the end", lambda: numbers(3)[3], "index 3 of 3 elements", "ds[i]", "0..len(ds)-1"),
    ("an index before the start", lambda: numbers(3)[-4], "index -4 of 3 elements", "ds[i]", "0..len(ds)-1"),
    ("an index of a filter", lambda: numbers(3).filter(double)[0], f"ds[i] {POSITIONS}", "ds[i]", "below the filter"),
    ("a negative index of an endless dataset", lambda: endless()[-1], "index -1 of inf elements", "ds[i]", "0.."),
    ("the length of a filter", lambda: len(numbers(3).filter(double)), "only known after reading", "len(ds)", "take(n)"),
    ("the length of an endless dataset", lambda: len(endless()), "is endless", "len(ds)", "take(n)"),
    ("the spec of nothing", lambda: numbers(3).filter(lambda x: x > 9).spec(), "gave no element", "ds.spec()", "the filters"),
    ("arrays of different lengths", lambda: ps.from_arrays({"a": np.zeros(2), "b": np.zeros(3)}), "3", "from_arrays", ""),
    ("a generator that is none", lambda: ps.from_generator(3), "neither callable nor iterable", "from_generator", "yields"),  # type: ignore[arg-type]
    ("a source without length", lambda: ps.from_source(iter([])), "", "from_source", ""),
]


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize(("call", "what", "where", "fix"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    with pytest.raises(PenstockError) as refusal:
        call()
    assert isinstance(refusal.value, (PlanError, SourceError))
    assert what in refusal.value.what
    assert where in refusal.value.where
    assert fix in refusal.value.fix
    assert refusal.value.what
    assert refusal.value.fix


def test_indexing_and_length_errors_are_what_python_expects() -> None:
    with pytest.raises(IndexError):
        _ = numbers(3)[3]
    with pytest.raises(TypeError):
        len(endless())
    assert list(generated()) == [0, 1, 2, 3]  # list() asks for a length first


CHAINS: dict[str, tuple[ps.Dataset, int]] = {
    "source": (numbers(10), 10),
    "map": (numbers(10).map(double), 10),
    "enumerate": (numbers(10).enumerate(5), 10),
    "shuffle": (numbers(10).shuffle(seed=1), 10),
    "window": (numbers(10).shuffle(3, seed=1), 10),
    "shard": (numbers(10).shard(3, 1), 3),
    "take": (numbers(10).take(4), 4),
    "take more": (numbers(10).take(40), 10),
    "skip": (numbers(10).skip(4), 6),
    "skip all": (numbers(10).skip(11), 0),
    "repeat": (numbers(10).repeat(3), 30),
    "concatenate": (numbers(10).concatenate(numbers(2), numbers(1)), 13),
    "zip": (numbers(10).zip(numbers(4).map(double)), 4),
    "batch": (numbers(10).batch(4), 3),
    "batch of whole ones": (numbers(10).batch(4, drop_remainder=True), 2),
    "padded": (numbers(10).map(np.arange).padded_batch(3), 4),
    "prefetch": (numbers(10).prefetch(2), 10),
    "arrays": (ps.from_arrays((np.arange(6), [np.ones((6, 2))])).batch(2), 3),
    "take of endless": (numbers(3).repeat().take(7), 7),
    "batches of batches": (numbers(10).batch(2).batch(2), 3),
    "random": (numbers(10).map(noisy, seed=4).repeat(2), 20),
}


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize("name", CHAINS)
def test_length_index_spec_and_two_runs_agree(name: str) -> None:
    ds, length = CHAINS[name]
    first, second = list(ds), list(ds.feed(num_workers=2))
    assert len(ds) == len(first) == length
    assert [plain(item) for item in first] == [plain(item) for item in second] == [plain(ds[place]) for place in range(length)]
    if length:
        assert plain(ds[-1]) == plain(ds[length - 1])
        assert plain(ds[np.int64(0)]) == plain(ds[0])


def test_random_numbers_differ_by_epoch_element_seed_and_place_and_not_by_run() -> None:
    ds = numbers(50).map(noisy, seed=1).repeat(2)
    first = list(ds)
    assert first == list(ds.feed(num_workers=3))
    assert first[:50] != first[50:]
    assert list(numbers(50).map(noisy, seed=2)) != first[:50]
    twice = list(numbers(50).map(lambda x: (x, x)).map(lambda pair: pair[0]).map(noisy, seed=1).map(noisy, seed=1))
    draws = [(value // 1000 * 1000 - (first[place] - place), first[place] - place) for place, value in enumerate(twice)]
    assert sum(one != other for one, other in draws) > 40


@pytest.mark.parametrize(
    ("ds", "text"),
    [
        (numbers(10).batch(4), "Dataset (3 elements)"),
        (endless(), "Dataset (endless)"),
        (numbers(10).filter(double), "Dataset (unknown length)"),
    ],
)
def test_print_says_how_long_it_is(ds: ps.Dataset, text: str) -> None:
    assert repr(ds).splitlines()[0] == text


def test_print_shows_the_plan_from_the_source_up_with_branches_indented() -> None:
    ds = numbers(9).shuffle(4, seed=7).zip(numbers(3).map(double)).shard(2, 0).padded_batch(2, padding_values=-1).repeat(2).prefetch(3)
    lines = repr(ds).splitlines()
    assert lines[0] == "Dataset (2 elements)"
    assert "from_source(list" in lines[1]
    assert [line.strip() for line in lines[2:]] == [
        "shuffle(buffer_size=4, seed=7)",
        lines[3].strip(),
        "map(double)",
        "zip of 2",
        "shard(2, 0)",
        "padded_batch(2, padding_values=-1)",
        "repeat(2)",
        "prefetch(3)",
    ]
    assert len(lines[1]) - len(lines[1].lstrip()) > len(lines[5]) - len(lines[5].lstrip())


def test_explain_says_what_is_fused_and_what_goes_into_slots() -> None:
    text = numbers(9).map(double).map(noisy, concurrency=3, name="slow").batch(3).map(plain).filter(len).take(2).explain()
    assert text.startswith("plan\n")
    assert "positions by arithmetic, any block at any time" in text
    assert "stage 'read+double' on the shared workers" in text
    assert "stage 'slow' on 3 worker(s) of its own" in text
    assert "batches of 3: rows written straight into recycled batch slots" in text
    assert "then on whole batches: plain, len" in text
    assert "then in order, at one place: taking" in text


def test_spec_gives_shapes_and_dtypes_of_one_element() -> None:
    tree = {"x": np.zeros((4, 2, 3), np.float32), "y": (np.arange(4, dtype=np.int16), np.array(["a", "bb", "c", "d"]))}
    spec = ps.from_arrays(tree).spec()
    assert spec["x"] == ps.ArraySpec((2, 3), np.dtype(np.float32))
    assert spec["y"][0] == ps.ArraySpec((), np.dtype(np.int16))
    assert spec["y"][1].dtype == np.dtype(object)
    assert numbers(5).batch(2).spec() == ps.ArraySpec((2,), np.dtype(np.int64))
    assert repr(ps.ArraySpec((2, 3), np.dtype(np.float32))) == "float32[2, 3]"


def test_the_spec_of_a_generator_reads_one_element_and_closes_it() -> None:
    events: list[str] = []

    def rows() -> Iterator[float]:
        try:
            while True:
                yield 1.5
        finally:
            events.append("closed")

    assert ps.from_generator(rows).spec() == ps.ArraySpec((), np.dtype(np.float64))
    assert events == ["closed"]


def test_an_error_in_an_indexed_element_is_the_users_own_with_a_note() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = numbers(5).map(lambda x: 1 // (x - 2), name="divide").shuffle(seed=3).batch(5)[0]
    assert any("stage 'divide'" in note for note in caught.value.__notes__)


def test_every_method_returns_a_new_dataset_and_leaves_the_old_one() -> None:
    ds = numbers(6)
    before = repr(ds)
    derived = [ds.map(double), ds.shuffle(), ds.batch(2), ds.repeat(2), ds.filter(bool), ds.take(1), ds.with_options(num_workers=1)]
    assert all(isinstance(other, ps.Dataset) and other is not ds for other in derived)
    assert repr(ds) == before
    assert list(ds) == list(range(6))
    with pytest.raises(AttributeError):
        ds.anything = 1  # type: ignore[attr-defined]


def test_building_runs_nothing() -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("it ran")

    ds = ps.from_generator(refuse).map(refuse).filter(refuse).flat_map(refuse).batch(3)
    assert "map(" in repr(ds)
    assert ds.explain()
    ds.feed().close()


def test_options_of_a_dataset_hold_for_what_is_built_on_it_and_feed_overrides_them() -> None:
    names: set[str] = set()

    def note(x: int) -> int:
        import threading

        names.add(threading.current_thread().name)
        return x

    ds = numbers(20).with_options(num_workers=1).map(note).with_options(executor="threads")
    list(ds)
    assert names == {"penstock-workers-0"}
    names.clear()
    list(ds.feed(executor="inline"))
    assert names == {"MainThread"}
    names.clear()
    list(ds.with_options(executor="inline"))
    assert names == {"MainThread"}


def test_a_map_with_concurrency_runs_in_threads_of_its_own() -> None:
    names: set[str] = set()

    def note(x: int) -> int:
        import threading

        names.add(threading.current_thread().name)
        return x

    assert list(numbers(200).map(note, concurrency=2).batch(2).unbatch().feed(num_workers=2)) == list(range(200))
    assert names
    assert not any(name.startswith("penstock-workers") for name in names)


def test_a_name_given_to_an_operator_is_that_of_its_stage() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(numbers(3).flat_map(lambda x: 1 // 0, name="blow"))
    assert any("stage 'blow'" in note for note in caught.value.__notes__)


def test_a_source_of_our_protocol_is_used_as_it_is() -> None:
    class Squares:
        def __len__(self) -> int:
            return 5

        def gather(self, indices: Any, rows: list[Any]) -> None:
            rows.extend(index * index for index in indices)

        def describe(self, index: int) -> str:
            return f"square {index}"

        def fingerprint(self) -> dict[str, Any]:
            return {"kind": "squares"}

        def label(self) -> str:
            return "squares()"

    ds = ps.from_source(Squares())
    assert list(ds) == [0, 1, 4, 9, 16]
    assert "squares()" in repr(ds)


def test_files_lists_and_folders_are_read(tmp_path: Any) -> None:
    for name in ("cat/one.jpg", "dog/two.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "train.txt").write_text("cat/one.jpg 4\ndog/two.jpg 5\n")
    assert [(item["data"], item["label"]) for item in ps.read_list(tmp_path / "train.txt")] == [(b"cat/one.jpg", 4), (b"dog/two.jpg", 5)]
    assert [(item["data"], item["label"]) for item in ps.read_images(tmp_path)] == [(b"cat/one.jpg", 0), (b"dog/two.jpg", 1)]
    assert [item["data"] for item in ps.read_files(str(tmp_path / "**" / "*.jpg"))] == [b"cat/one.jpg", b"dog/two.jpg"]
