from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dataset.small import double, endless, generated, numbers

import penstock as ps


def test_indexing_and_length_errors_are_what_python_expects() -> None:
    with pytest.raises(IndexError):
        _ = numbers(3)[3]
    with pytest.raises(ps.errors.PlanError) as refused:
        _ = numbers(3).filter(double)[0]
    assert refused.value.where == "ds[i]"
    with pytest.raises(TypeError):
        len(endless())
    assert list(generated()) == [0, 1, 2, 3]  # list() asks for a length first
    assert numbers(3)[-1] == numbers(3)[np.int64(2)] == 2


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


class Unread:
    """A source of the user's that must not be read."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("it was read")


def test_a_notebook_shows_the_plan_as_a_table_and_reads_nothing() -> None:
    shown = ps.from_source(Unread()).map(lambda x: x).zip(numbers(4)).batch(2)
    text = shown._repr_html_()
    rows = re.findall(r"<tr><td[^>]*padding-left: (\d)em[^>]*><code>(.*?)</code></td><td>(.*?)</td></tr>", text)
    assert [row[0] for row in rows] == ["3", "3", "3", "1", "1"]
    assert [row[1].partition("(")[0] for row in rows] == ["from_source", "map", "from_source", "zip of 2", "batch"]
    assert [row[2] for row in rows] == ["9 elements", "9 elements", "4 elements", "4 elements", "2 elements"]
    assert "<caption>Dataset (2 elements)</caption>" in text
    assert "element: known when one is computed: ds.spec()" in text
    assert "unknown length" in numbers(3).filter(bool)._repr_html_()


def test_a_notebooks_table_has_the_spec_where_it_is_declared_and_everything_is_escaped() -> None:
    ds = ps.from_arrays({"<b>": np.zeros((6, 2), np.float32), "name": np.array(["a"] * 6)}).shuffle(seed=1).batch(2, drop_remainder=True)
    text = ds._repr_html_()
    assert "element: <code>{&#x27;&lt;b&gt;&#x27;: float32[2, 2], &#x27;name&#x27;: object[2]}</code>" in text
    assert ds.spec() == {"<b>": ps.ArraySpec((2, 2), np.dtype(np.float32)), "name": ps.ArraySpec((2,), np.dtype(object))}
    declared = ps.from_source(Unread()).map(lambda x: x, output_spec=ps.ArraySpec((3,), np.int8))
    assert "element: <code>int8[3]</code>" in declared._repr_html_()
    assert "&lt;lambda&gt;" in declared._repr_html_()
    for shown in (text, declared._repr_html_()):
        tags = set(re.findall(r"<(/?\w+)", shown))
        assert tags <= {
            f"{end}{tag}" for end in ("", "/") for tag in ("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "code")
        }


def test_explain_measures_the_stages_when_it_is_asked_to() -> None:
    calls: list[int] = []

    def work(x: int) -> int:
        calls.append(x)
        return sum(range(200_000)) + x

    ds = numbers(5000).map(work, concurrency=2, name="work")
    assert "costs" not in ds.explain()
    assert calls == []
    plan, _, costs = ds.explain(measure=20).partition("\ncosts of an element on one worker\n")
    assert plan == ds.explain()
    assert 20 <= len(calls) < 5000
    found = dict(re.findall(r"  stage '(\S+)': (\d+\.\d) us, \d+ % of it on a CPU", costs))
    assert found.keys() == {"read", "work"}
    assert float(found["work"]) > float(found["read"])


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
    derived = [
        ds.map(double),
        ds.shuffle(),
        ds.batch(2),
        ds.repeat(2),
        ds.filter(bool),
        ds.take(1),
        ds.with_options(executor="threads", num_workers=1),
    ]
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

    ds = numbers(20).with_options(executor="threads", num_workers=1).map(note).with_options(executor="threads")
    list(ds)
    assert names == {"penstock-workers-0"}
    names.clear()
    list(ds.feed(executor="inline"))
    assert names == {"MainThread"}
    names.clear()
    list(ds.with_options(executor="inline"))
    assert names == {"MainThread"}


def test_positions_near_the_bound_are_exact() -> None:
    place = 2**32
    assert endless().shard(2**31 - 1, 7)[place] == (place * (2**31 - 1) + 7) % 3
    far = (place * (2**31 - 1)) % 3
    assert endless().window(2, shift=2**31 - 1)[place].tolist() == [far, (far + 1) % 3]
    assert endless().skip(2**63 - 1 - 2**32)[place] == (2**63 - 1) % 3
    assert numbers(2).enumerate(2**63 - 2)[1] == (2**63 - 1, 1)


@pytest.mark.parametrize("method", ["feed", "with_options"])
def test_the_options_are_written_out_as_options_has_them(method: str) -> None:
    parameters = inspect.signature(getattr(ps.Dataset, method)).parameters
    given = {name: one.annotation for name, one in parameters.items() if name not in ("self", "listeners", "unknown")}
    assert list(given) == list(inspect.signature(ps.Options).parameters)
    fields = {name: field.type for name, field in ps.Options.__dataclass_fields__.items()}
    assert given == fields
    assert parameters["unknown"].annotation == "Never"


def test_an_option_that_is_not_given_stays() -> None:
    dataset = numbers(3).with_options(executor="threads", num_workers=1).with_options(grace_period_s=5.0)
    assert (dataset._options.num_workers, dataset._options.grace_period_s) == (1, 5.0)
    assert dataset.feed(grace_period_s=6.0)._compiled.options == ps.Options(executor="threads", num_workers=1, grace_period_s=6.0)
