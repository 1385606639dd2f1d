from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from dataset.small import double, numbers

import penstock as ps
from penstock.dataset.foreign import _ATTRIBUTES, _KEYWORDS
from penstock.errors import PlanError, UnknownArgument

ds: Any = numbers(3)
module: Any = ps


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (lambda: module.from_tensor_slices, "module 'penstock' has no attribute 'from_tensor_slices': ps.from_arrays(arrays)"),
        (lambda: module.AUTOTUNE, "module 'penstock' has no attribute 'AUTOTUNE': leave it out: feed(num_workers=\"auto\") is the default"),
        (lambda: module.DataLoader, "'DataLoader': ps.from_dataloader(loader) takes one; ps.from_source(dataset)"),
        (lambda: module.Dataset.from_tensor_slices, "type object 'Dataset' has no attribute 'from_tensor_slices': ps.from_arrays(arrays)"),
        (lambda: module.Dataset.from_generator, "ps.from_generator(fn)"),
        (lambda: ds.element_spec, "'Dataset' object has no attribute 'element_spec': ds.spec()"),
        (lambda: ds.cardinality, "len(ds)"),
        (lambda: ds.scan, "ps.from_generator(fn) over a function that reads ds"),
        (lambda: ds.select, "ds.sample(int(mask.sum()), mask, replacement=False)"),
    ],
)
def test_a_name_of_another_library_leads_to_ours(look: Callable[[], Any], text: str) -> None:
    with pytest.raises(AttributeError) as caught:
        look()
    assert text in str(caught.value)


@pytest.mark.parametrize("owner", [ps, ps.Dataset, ds], ids=["module", "class", "dataset"])
def test_any_other_name_is_an_error_as_python_says_it_and_has_the_nearest_name(owner: Any) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'nme'$") as caught:
        _ = owner.nme
    assert (caught.value.name, caught.value.obj) == ("nme", owner)  # from which Python finds what was meant


@pytest.mark.parametrize(
    ("call", "keyword", "fix"),
    [
        (ds.map, "num_parallel_calls", "feed(num_workers=...)"),
        (ds.map, "map_func", "its name is fn here"),
        (ds.filter, "num_proc", "feed(num_workers=...)"),
        (ds.batch, "deterministic", "feed(ordered=False)"),
        (ds.batch, "drop_last", "drop_remainder=True"),
        (ds.interleave, "num_parallel_calls", "feed(num_workers=...)"),
        (ds.feed, "batch_size", "call ds.batch(n) before feed()"),
        (ds.feed, "drop_last", "drop_remainder=True"),
        (ds.feed, "sampler", "ds.shard(num_ranks, rank)"),
        (ds.feed, "persistent_workers", "make one feed"),
        (ds.with_options, "prefetch_factor", "memory_bytes="),
        (ps.from_generator, "output_signature", "leave it out"),
        (ps.read_tfrecord, "num_parallel_reads", "feed(num_workers=...)"),
        (ps.read_csv, "batch_size", "call ds.batch(n)"),
    ],
)
def test_a_keyword_of_another_library_leads_to_ours(call: Any, keyword: str, fix: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(**{keyword: 4})
    error, name = caught.value, call.__name__
    assert isinstance(error, UnknownArgument)
    assert isinstance(error, PlanError)
    if name in ("feed", "with_options"):
        assert (error.what, error.where) == (f"there is no option {keyword!r}", "feed options")
    else:
        assert (error.what, error.where) == (f"{name}() has no argument {keyword!r}", f"{name}({keyword}=...)")
    assert fix in error.fix


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("device", "is now {}(output=ps.Torch(device=...)), or ps.Jax(device=...)"),
        ("pin_memory", "is now {}(output=ps.Torch(pin_memory=...))"),
        ("depth", "is now {}(output=ps.Torch(depth=...)), or ps.Jax(depth=...)"),
        ("device_transform", "is now {}(output=ps.Torch(transform=...)), or ps.Jax(transform=...)"),
        ("sharding", "is now {}(output=ps.Jax(sharding=...))"),
        ("ray_options", "is now {}(executor=ps.Ray(...))"),
        ("quarantine", "is now {}(on_error=ps.Skip(quarantine=...)), or at the map whose elements it is for"),
        ("on_read_error", "is now {}(on_error=...), with an on_error= at each map that differs"),
        ("record", "is gone"),
        ("replay", "is gone"),
    ],
)
@pytest.mark.parametrize("call", ["feed", "with_options"])
def test_an_option_of_an_earlier_version_names_its_new_form(call: str, name: str, what: str) -> None:
    with pytest.raises(UnknownArgument) as caught:
        getattr(ds, call)(**{name: None})
    assert caught.value.what == f"{call}({name}=...) {what.format(call)}"
    assert caught.value.where == "feed options"
    assert caught.value.fix
    with pytest.raises(AttributeError, match=r"feed\(executor=ps.Ray\(...\)\) takes its arguments"):
        ps.RayOptions  # noqa: B018


def test_autotune_as_a_number_leads_to_what_chooses_here() -> None:
    autotune = -1
    with pytest.raises(PlanError, match=r'-1, the AUTOTUNE of tf.data, is "auto" here'):
        ds.feed(executor="threads", num_workers=autotune)
    with pytest.raises(PlanError, match=r"leave prefetch\(\) out where tf.data has AUTOTUNE"):
        ds.prefetch(autotune)


def test_a_slip_in_a_keyword_of_an_operator_names_the_nearest_one() -> None:
    with pytest.raises(UnknownArgument, match=r"map\(\) has no argument 'concurency'; did you mean 'concurrency'\?") as caught:
        ds.map(double, concurency=3)
    assert caught.value.fix == "the arguments are concurrency, executor, fn, name, on_error, output_spec, seed"


def test_no_name_of_another_library_is_one_of_ours_or_is_shown() -> None:
    shown = {*dir(ps), *dir(ps.Dataset)} - {"from_generator"}  # ps has it, and the class has not
    assert not shown & _ATTRIBUTES.keys()
    assert not set(dir(ps.Dataset)) & _ATTRIBUTES.keys()
    options = set(inspect.signature(ps.Options).parameters)
    assert not options & _KEYWORDS.keys()


def test_the_methods_look_as_they_are_written() -> None:
    assert str(inspect.signature(ps.Dataset.take)) == "(self, count: 'int') -> 'Dataset'"
    assert ps.Dataset.take.__qualname__ == "OrderMethods.take"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'count'"):
        ds.take()
