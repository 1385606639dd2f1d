"""Batches as JAX arrays: copies, over several devices, ahead of the loop."""

from __future__ import annotations

import os
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import numpy as np
import pytest
from interop.resuming import require_counted

import penstock as ps
from penstock._contracts.options import Options
from penstock.adapters.jax import JaxOutput
from penstock.errors import PlanError, SpecError
from penstock.feed.compiled import Compiled
from penstock.feed.feed import Feed

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytestmark = pytest.mark.slow


def _pipeline(count: int = 40) -> ps.Dataset:
    def element(n: Any) -> dict[str, Any]:
        return {"x": np.full(3, n, np.float32), "y": np.int32(n), "name": f"n{n}"}

    return ps.from_arrays(np.arange(count)).shuffle(seed=7).map(element).batch(4)


def _over_devices() -> Any:
    return jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices(), ("data",)), jax.sharding.PartitionSpec("data"))


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"depth": 7}, {"sharding": "devices"}], ids=str)
def test_all_kept_batches_stay_right(options: dict[str, Any]) -> None:
    if options.get("sharding"):
        options = {"sharding": _over_devices()}
    want = [batch["x"].copy() for batch in _pipeline(400)]
    with _pipeline(400).feed(output=ps.Jax(**options)) as feed:
        kept = list(feed)
    assert isinstance(kept[0]["x"], jax.Array)
    assert isinstance(kept[0]["name"], np.ndarray)
    assert all(np.array_equal(np.asarray(batch["x"]), array) for batch, array in zip(kept, want, strict=True))


def test_a_sharding_lays_each_batch_over_the_devices() -> None:
    with _pipeline().feed(output=ps.Jax(sharding=_over_devices())) as feed:
        array = next(feed)["x"]
    assert array.shape == (4, 3)
    assert {shard.data.shape for shard in array.addressable_shards} == {(1, 3)}
    assert len({shard.device for shard in array.addressable_shards}) == 4


def test_each_field_has_a_sharding_of_its_own_and_the_others_are_laid_out_by_jax() -> None:
    whole = jax.sharding.NamedSharding(_over_devices().mesh, jax.sharding.PartitionSpec())
    element = {"image": np.zeros((4, 3), np.float32), "label": {"a": np.arange(4), "b": np.arange(4)}, "rest": np.arange(4)}
    by_field = {"image": _over_devices(), "label": {"a": whole}}
    with ps.from_source([element] * 2).feed(output=ps.Jax(sharding=by_field)) as feed:
        batch = next(feed)
    shards = {name: [shard.data.shape for shard in array.addressable_shards] for name, array in (*batch.items(), *batch["label"].items())
              if name != "label"}  # fmt: skip
    assert shards == {"image": [(1, 3)] * 4, "rest": [(4,)], "a": [(4,)] * 4, "b": [(4,)]}


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"x": np.zeros(4)}, r"names the fields \['image'\], and the batch has \['x'\](.|\n)*fix: +name the fields of the batch"),
        (np.zeros(4), r"names the fields \['image'\], and the batch has none"),
    ],
)
def test_a_sharding_of_a_field_that_is_not_there_is_an_error(batch: Any, words: str) -> None:
    with ps.from_source([batch]).feed(output=ps.Jax(sharding={"image": _over_devices()})) as feed, pytest.raises(SpecError, match=words):
        next(feed)


def test_a_batch_that_devices_cannot_share_is_an_error_with_its_shape() -> None:
    words = r"shape \(3, 2\) cannot be laid out as NamedSharding(.|\n)*fix: +choose a batch size that the number of devices(.|\n)*divides"
    with (
        ps.from_arrays(np.zeros((6, 2))).batch(3).feed(output=ps.Jax(sharding=_over_devices())) as feed,
        pytest.raises(SpecError, match=words),
    ):
        next(feed)


def test_what_is_copied_ahead_of_the_loop_changes_nothing() -> None:
    require_counted(lambda ds: ds.feed(output=ps.Jax(depth=4)))


def test_batches_may_be_donated_and_deleted() -> None:
    step, total = jax.jit(lambda x: x + 1, donate_argnums=(0,)), 0.0
    with _pipeline().feed(output="jax", num_workers=0) as feed:
        for batch in feed:
            total += float(step(batch["x"]).sum())
            batch["y"].delete()
    assert total == 3 * sum(range(1, 41))


def test_an_error_of_a_copy_is_raised_at_its_batch() -> None:
    got = []
    with ps.from_arrays(np.arange(42.0)).batch(4).feed(output=ps.Jax(sharding=_over_devices(), depth=3)) as feed:
        with pytest.raises(SpecError, match="cannot be laid out") as caught:
            got.extend(batch.tolist() for batch in feed)
        assert any("element 10 of this feed" in note for note in caught.value.__notes__)
    assert len(got) == 10


def test_what_is_copied_ahead_is_not_said_to_be_kept_by_the_loop() -> None:
    ds = ps.from_arrays(np.zeros((4000, 10_000), np.float32)).map(lambda x: x + 1).batch(20)
    with ds.feed(output=ps.Jax(depth=10), memory_bytes=32 << 20) as feed:
        for batch in feed:
            del batch
        assert not [text for text in feed.stats().notices if "keeps" in text]


def test_bfloat16_becomes_an_array() -> None:
    import ml_dtypes

    with ps.from_arrays(np.ones((8, 4), ml_dtypes.bfloat16)).batch(4).feed(output="jax") as feed:
        assert next(feed).dtype == jax.numpy.bfloat16


def test_a_transform_runs_on_the_device() -> None:
    double = jax.jit(lambda x: x * 2)
    with _pipeline().feed(output=ps.Jax(transform=lambda batch: {**batch, "x": double(batch["x"])})) as feed:
        batch = next(feed)
    assert np.array_equal(np.asarray(batch["x"])[:, 0], 2.0 * np.asarray(batch["y"]))


_DTYPES = ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")


@pytest.mark.parametrize("device", [None, 1])
@pytest.mark.parametrize("x64", [False, True])
def test_one_call_for_all_arrays_gives_what_a_copy_of_each_gives(device: int | None, x64: bool) -> None:
    import ml_dtypes

    values = [np.arange(4).astype(dtype) for dtype in (*_DTYPES, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)]
    values += [np.zeros((0, 3)), np.arange(12)[::-2], np.arange(12.0).reshape(3, 4).T, np.array(5), np.array([2**63], np.uint64)]
    batch = {
        "all": values,
        "numbers": (np.float32(3), np.int64(2**40 + 5), np.bool_(True)),
        "name": np.array(["a"], object),
        "date": np.array(["2026-01-01"], "datetime64[D]"),
        "n": 7,
    }
    output = JaxOutput(jax, None, None if device is None else jax.devices()[device], 2, None)
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    try:
        got, want = output.put(batch), output.send(batch, [batch])
    finally:
        jax.config.update("jax_enable_x64", before)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert type(one) is type(other)
        if isinstance(one, jax.Array):
            assert (one.aval, one.committed, one.devices()) == (other.aval, other.committed, other.devices())
            assert np.array_equal(np.asarray(one), np.asarray(other))


def test_arrays_that_jax_is_given_at_once_keep_their_buffer() -> None:
    class AtOnce(JaxOutput):
        """As on a device, where JAX copies in the background: here it holds the buffer for good."""

        def send(self, batch: Any, group: list[Any]) -> Any:
            return self.put(batch)

    want = [batch["x"].copy() for batch in _pipeline(400)]
    output = AtOnce(jax, None, None, 2, None)
    with Feed(Compiled(_pipeline(400)._root, Options(output="jax", num_workers=4), output)) as feed:
        kept = [batch["x"] for batch in feed]
    assert all(np.array_equal(np.asarray(array), other) for array, other in zip(kept, want, strict=True))


def test_a_platform_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match="device='nowhere' cannot be used: "):
        _pipeline().feed(output=ps.Jax(device="nowhere"))
