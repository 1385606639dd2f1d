from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.epochs import OPTIONS, rest
from laws.plans import plain

import penstock as ps

COUNT = 23
SRC = str(Path(__file__).parents[2] / "src")


def drawn(value: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {"value": int(value), "below": int(rng.integers(1 << 30)), "row": np.full(3, value, ">i2")}


def drawn_again(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**element, "above": int(rng.integers(1 << 30))}


Place = Callable[[ps.Dataset], ps.Dataset]


@pytest.fixture(params=["memory", "little memory", "folder", "small folder", "memory over folder", "no folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Give what puts a cache on a dataset."""
    places: dict[str, Place] = {
        "memory": lambda ds: ds.cache(),
        "little memory": lambda ds: ds.cache(max_bytes=1500),
        "folder": lambda ds: ds.cache(tmp_path),
        "small folder": lambda ds: ds.cache(tmp_path, max_bytes=1500),
        "memory over folder": lambda ds: ds.cache(tmp_path).cache(),
        "no folder": lambda ds: ds.cache(Path(__file__) / "below a file"),
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the cache in")
        yield places[request.param]


def pipeline(place: Place) -> ps.Dataset:
    """Return random maps below and above a cache, shuffled below and above, three epochs, batched."""
    cached = place(ps.from_arrays(np.arange(COUNT)).shuffle(seed=3).map(drawn, seed=1))
    return cached.shuffle(seed=5).map(drawn_again, seed=2).repeat(3).batch(4)


def reference() -> list[Any]:
    """Compute the same in plain Python, from pipelines without a cache."""
    kept = list(ps.from_arrays(np.arange(COUNT)).shuffle(seed=3).map(drawn, seed=1))
    passes = list(ps.from_arrays(np.arange(COUNT)).shuffle(seed=5).repeat(3))  # places in `kept`
    index_of = [element["value"] for element in kept]
    out = []
    for number, position in enumerate(passes):
        bits = np.random.Philox(key=np.array([2, 2], np.uint64), counter=[0, 0, index_of[position], number // COUNT])
        out.append(drawn_again(kept[position], np.random.Generator(bits)))
    groups = [out[start : start + 4] for start in range(0, len(out), 4)]
    return [{name: [plain(element[name]) for element in group] for name in group[0]} for group in groups]


def test_it_resumes_at_every_element_with_other_options_and_with_an_empty_cache(place: Place, tmp_path: Path) -> None:
    wanted, ds = reference(), pipeline(place)
    for step in range(len(wanted) + 1):
        with ds.feed(**OPTIONS[step % 4]) as feed:
            assert [plain(next(feed)) for _ in range(step)] == wanted[:step]
            state = json.loads(json.dumps(feed.state_dict()))
        cold = pipeline(lambda below: below.cache())
        for other in (ds, cold) if isinstance(state["plan"], list) and state["plan"].count("cache()") == 1 else (ds,):
            with other.feed(**OPTIONS[(step + 1) % 4]) as feed:
                feed.load_state_dict(state)
                middle = [plain(batch) for _, batch in zip(range(2), rest(feed), strict=False)]
                again = feed.state_dict()
            with other.feed(**OPTIONS[(step + 2) % 4]) as feed:
                feed.load_state_dict(again)
                assert middle + [plain(batch) for batch in rest(feed)] == wanted[step:]


def test_above_what_is_the_same_in_every_epoch_a_cache_changes_nothing(place: Place) -> None:
    def pairs(x: Any, rng: np.random.Generator) -> tuple[int, int]:
        return int(x), int(rng.integers(1 << 30))

    base = ps.from_arrays(np.arange(7)).repeat(2)
    zipped = base.concatenate(base).zip(base.concatenate(base)).map(first_of)
    assert list(place(zipped).map(pairs).repeat(3)) == list(zipped.map(pairs).repeat(3))


def first_of(pair: Any) -> Any:
    return pair[0]


def test_each_element_is_computed_once_for_all_epochs_feeds_and_looks(tmp_path: Path) -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return x

    for ds in (ps.from_arrays(np.arange(COUNT)).map(note).cache(), ps.from_arrays(np.arange(COUNT)).map(note).cache(tmp_path, version=1)):
        seen.clear()
        above = ds.shuffle(seed=1).repeat(3).batch(5)
        list(ds.feed(executor="threads", num_workers=2))
        list(above.feed(executor="threads", num_workers=2))
        assert [int(ds[index]) for index in range(COUNT)] == list(range(COUNT))
        assert sorted(seen) == list(range(COUNT))
        assert f"{COUNT} elements" in ds.explain()
        assert f" {COUNT} misses" in above.explain()
    again = ps.from_arrays(np.arange(COUNT)).map(note).cache(tmp_path, version=1)
    seen.clear()
    assert list(again) == list(range(COUNT))
    assert not seen
    assert list(ps.from_arrays(np.arange(COUNT)).map(note).cache(tmp_path, version=2)) == list(range(COUNT))
    assert len(seen) == COUNT


def test_what_writes_into_an_element_is_told_in_every_pass_and_changes_nothing(place: Place) -> None:
    def spoil(element: dict[str, Any]) -> Any:
        element["value"] = -1  # the dict is the function's own
        element["row"] += 1  # the arrays are not
        return element

    cached = place(ps.from_arrays(np.arange(4)).map(drawn, seed=1))
    for _ in range(3):
        with pytest.raises(ValueError, match="read-only") as caught:
            list(cached.map(spoil).feed(num_workers=0))
        assert "spoil', worker 0, element epoch 0 index 0 (row 0 of the arrays)" in caught.value.__notes__[0]
        assert [element["value"] for element in cached] == [0, 1, 2, 3]
        assert [element["row"].tolist() for element in cached] == [[value] * 3 for value in range(4)]


def test_what_cannot_be_kept_is_an_error_of_the_cache() -> None:
    with pytest.raises(ps.errors.SpecError) as caught:
        list(ps.from_source([1, None]).cache())
    assert caught.value.what == "a cache cannot keep a NoneType"
    assert "stage 'cache'" in caught.value.__notes__[0]


RUN = """
import os, sys
import numpy as np
import penstock as ps
folder, mode = sys.argv[1:]
def slow(x):
    sys.stdout.write(f"{int(x)} "); sys.stdout.flush()
    if mode == "wait" and int(x) == 150:
        print("here", flush=True)
        sys.stdin.read()
    return {"x": np.full(5, x), "name": f"element {int(x)}"}
if mode == "both":
    input()
ds = ps.from_arrays(np.arange(300)).map(slow).cache(folder)
both = ds.shuffle(seed=int(os.environ["SEED"])).feed(executor="threads", num_workers=2)
values = [element["name"] for element in both] if mode == "both" else list(ds)
print("computed")
if mode == "both":
    assert sorted(values) == sorted(f"element {index}" for index in range(300))
else:
    assert [(v["name"], v["x"].tolist()) for v in values] == [(f"element {i}", [i] * 5) for i in range(300)]
"""


def started(folder: Path, mode: str, seed: int = 0) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SRC, "SEED": str(seed)}
    arguments = [sys.executable, "-W", "error", "-c", RUN, str(folder), mode]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_run_that_is_killed_in_the_middle_leaves_what_it_computed_to_the_next(tmp_path: Path) -> None:
    with started(tmp_path, "wait") as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert "here" in told
        process.send_signal(signal.SIGKILL)
        before = set((told + process.stdout.read()).replace("here", " ").split())  # the other worker goes on while one waits
    with started(tmp_path, "plain") as process:
        computed = process.communicate()[0].split()
        assert process.returncode == 0
    assert computed[-1] == "computed"
    assert "150" in before
    assert before | set(computed[:-1]) == {str(number) for number in range(300)}
    assert len(computed) - 1 < 300
    assert "150" in computed
    with started(tmp_path, "plain") as process:
        assert process.communicate()[0].split() == ["computed"]


def test_two_runs_at_once_share_what_they_compute(tmp_path: Path) -> None:
    with started(tmp_path, "both", 1) as one, started(tmp_path, "both", 2) as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told = [process.communicate()[0].split() for process in (one, two)]
        assert [process.returncode for process in (one, two)] == [0, 0]
    assert [words[-1] for words in told] == ["computed", "computed"]
    with started(tmp_path, "plain") as process:
        assert process.communicate()[0].split() == ["computed"]


def test_with_any_byte_of_the_folder_changed_no_wrong_element_is_delivered(tmp_path: Path) -> None:
    def dataset() -> ps.Dataset:
        return ps.from_arrays(np.arange(4)).map(drawn, seed=1).cache(tmp_path)

    wanted = [plain(element) for element in dataset()]
    paths = [path for path in tmp_path.rglob("*") if path.suffix in (".data", ".index")]
    assert len(paths) == 2
    for path in paths:
        good = path.read_bytes()
        for at in range(0, len(good), 3):
            path.write_bytes(good[:at] + bytes([good[at] ^ 0x15]) + good[at + 1 :])
            assert [plain(element) for element in dataset().feed(num_workers=0)] == wanted
            for added in tmp_path.rglob("*.*"):
                if added.suffix in (".data", ".index") and added not in paths:
                    added.unlink()
        path.write_bytes(good)


def test_a_cache_in_a_folder_is_shared_by_plans_and_found_by_what_it_holds(tmp_path: Path) -> None:
    base = ps.from_arrays(np.arange(6))
    one, two = base.map(np.negative).cache(tmp_path), base.map(np.sqrt).cache(tmp_path)
    assert list(one) == [-value for value in range(6)]
    assert list(two) == list(np.sqrt(np.arange(6)))
    again = base.map(np.negative).cache(tmp_path)
    assert list(again) == list(one)
    assert "6 hits, 0 misses" in again.explain()


def test_what_is_kept_does_not_depend_on_where_in_a_plan_the_cache_stands(place: Place) -> None:
    base = ps.from_arrays(np.arange(COUNT))
    alone = [plain(element) for element in base.map(drawn, seed=1)]
    behind = base.map(drawn, seed=4).zip(place(base.map(drawn, seed=1)))
    assert [plain(right) for _, right in behind] == alone
    assert [plain(element) for element in place(base.map(drawn, seed=1))] == alone
