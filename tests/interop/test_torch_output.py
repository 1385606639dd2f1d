"""Batches as tensors: over the same memory, in PyTorch's DataLoader, Lightning, Accelerate and the Trainer of Hugging Face."""

from __future__ import annotations

import collections
import gc
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import FeedClosed, PlanError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

Pair = collections.namedtuple("Pair", "x y")


def _pipeline(count: int = 40) -> ps.Dataset:
    def element(n: Any) -> dict[str, Any]:
        return {"x": np.full(3, n, np.float32), "y": int(n), "name": f"n{n}"}

    return ps.from_arrays(np.arange(count)).shuffle(seed=7).map(element).batch(4)


def test_batches_are_tensors_and_texts_stay_arrays_of_objects() -> None:
    with _pipeline().feed(output="torch") as feed:
        batch = next(feed)
    assert (type(batch["x"]), batch["x"].dtype, tuple(batch["x"].shape)) == (torch.Tensor, torch.float32, (4, 3))
    assert batch["y"].dtype == torch.int64
    assert isinstance(batch["name"], np.ndarray)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(4).astype(dtype)
        for dtype in ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8")
    ],
    ids=str,
)
def test_each_dtype_that_pytorch_has_becomes_a_tensor_of_it(array: Any) -> None:
    with ps.from_arrays(array).batch(4).feed(output="torch") as feed:
        tensor = next(feed)
    assert isinstance(tensor, torch.Tensor)
    assert np.array_equal(tensor.numpy(), array)
    assert str(tensor.dtype).removeprefix("torch.") == array.dtype.newbyteorder("=").name


@pytest.mark.parametrize("shape", [(4,), (4, 0), (4, 2)], ids=str)
def test_bfloat16_of_another_package_becomes_a_tensor_over_the_same_memory(shape: tuple[int, ...]) -> None:
    import ml_dtypes

    array = np.arange(np.prod(shape)).astype(ml_dtypes.bfloat16).reshape(shape)
    with ps.from_arrays(array).map(lambda row: row * 2).batch(4).feed(output="torch") as feed:
        tensor = next(feed)
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.bfloat16, shape)
    assert np.array_equal(tensor.float().numpy(), 2 * array.astype(np.float32))


def test_other_dtypes_stay_numpy() -> None:
    dates = np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")
    with ps.from_arrays({"date": dates, "wide": np.zeros(2, np.longdouble)}).batch(2).feed(output="torch") as feed:
        batch = next(feed)
    assert all(isinstance(value, np.ndarray) for value in batch.values())


def test_mappings_of_a_collate_fn_are_converted_too() -> None:
    def collate(samples: list[Any]) -> Any:
        return collections.UserDict(x=np.stack(samples))

    with ps.from_arrays(np.arange(8.0)).batch(4, collate_fn=collate).feed(output=ps.Torch(device="meta")) as feed:
        assert next(feed)["x"].device.type == "meta"


def test_arrays_that_tensors_cannot_lie_over_are_copied() -> None:
    def element(x: Any) -> Any:
        fixed = np.arange(4)
        fixed.flags.writeable = False
        return Pair(fixed, (np.arange(6)[::-1], [np.float32(2.5), 3]))

    with ps.from_arrays(np.arange(3)).map(element).feed(output="torch") as feed:
        first = next(feed)
    assert isinstance(first, Pair)
    assert first.x.tolist() == [0, 1, 2, 3]
    assert first.y[0].tolist() == [5, 4, 3, 2, 1, 0]
    assert (first.y[1][0].item(), first.y[1][1]) == (2.5, 3)


def test_a_tensor_keeps_its_buffer_and_all_of_them_stay_right() -> None:
    want = [batch["x"].copy() for batch in _pipeline(400)]
    with _pipeline(400).feed(output="torch") as feed:
        kept = [batch["x"] for batch in feed]
    assert all(np.array_equal(tensor.numpy(), array) for tensor, array in zip(kept, want, strict=True))


def test_a_buffer_is_used_again_when_its_last_tensor_is_deleted() -> None:
    ds = ps.from_arrays(np.zeros((800, 40_000), np.float32)).map(lambda x: x + 1).batch(4)
    with ds.feed(output="torch", memory_bytes=4 << 20) as feed:
        places = {batch.data_ptr() for batch in feed}
    assert len(places) < 40  # of 200 batches


def test_tensors_that_are_kept_are_counted_and_the_report_says_so() -> None:
    ds = ps.from_arrays(np.zeros((4000, 10_000), np.float32)).map(lambda x: x + 1).batch(20)
    kept = []
    with ds.feed(output="torch", memory_bytes=8 << 20) as feed:
        for batch in feed:
            kept.append(batch)
            if feed.step == 60:
                break
        memory, notices = feed.stats().memory, feed.stats().notices
    assert memory.num_kept >= 55
    assert memory.kept_bytes >= 55 * 800_000
    assert any("the training loop keeps" in text and "drop batches that are done with" in text for text in notices)


def test_a_transform_gets_tensors_and_its_error_is_raised_at_its_batch() -> None:
    def transform(batch: Any) -> Any:
        if bool((batch == 21).any()):
            raise ZeroDivisionError("no 21")
        return batch.float() / 2

    with ps.from_arrays(np.arange(40)).batch(4).feed(output=ps.Torch(transform=transform)) as feed:
        first = [next(feed).tolist() for _ in range(5)]
        assert first[4] == [8.0, 8.5, 9.0, 9.5]
        state = feed.state_dict()
        with pytest.raises(ZeroDivisionError, match="no 21") as caught:
            next(feed)
        assert any("output='torch', element 5 of this feed (epoch 0)" in note for note in caught.value.__notes__)
        with pytest.raises(FeedClosed):
            next(feed)
    with ps.from_arrays(np.arange(40)).batch(4).feed(output="torch") as feed:
        feed.load_state_dict(state)
        assert next(feed).tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "nowhere", 3.5])
def test_a_device_that_is_not_there_is_refused(device: Any) -> None:
    if str(device).startswith("cuda") and torch.cuda.is_available() and device != "cuda:7":
        pytest.skip("there is one here")
    with pytest.raises(PlanError, match=rf"device={device!r} cannot be used: "):
        _pipeline().feed(output=ps.Torch(device=device))


def test_pinned_memory_without_an_accelerator_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(PlanError, match=r"pin_memory=True cannot be done: (.|\n)* fix: +leave pin_memory= out"):
        _pipeline().feed(output=ps.Torch(pin_memory=True))


def test_another_device_gets_batches_ahead_and_the_state_counts_what_was_given() -> None:
    with _pipeline().feed(output=ps.Torch(device="meta", depth=3)) as feed:
        assert next(feed)["x"].device.type == "meta"
        assert feed.state_dict()["position"]["source"] == [0, 1]


# -- loaders and trainers --------------------------------------------------------------------------------------------------------------


def test_a_data_loader_around_a_feed_goes_through_its_epochs() -> None:
    with _pipeline().feed(output="torch") as feed:
        loader = DataLoader(feed, batch_size=None)
        assert isinstance(feed, IterableDataset)
        assert len(loader) == 10
        epochs = [[batch["y"].tolist() for batch in loader] for _ in range(2)]
        assert feed.epoch == 2
    with _pipeline().feed() as feed:
        assert epochs == [[batch["y"].tolist() for batch in feed] for _ in range(2)]


def test_the_state_behind_each_step_of_a_data_loader_leaves_out_nothing_and_repeats_nothing() -> None:
    want = [batch["y"].tolist() for batch in _pipeline()]
    for at in (1, 4, 9):
        with _pipeline().feed(output="torch") as feed:
            got = [batch["y"].tolist() for _, batch in zip(range(at), DataLoader(feed, batch_size=None), strict=False)]
            state = feed.state_dict()
        with _pipeline().feed(output="torch") as feed:
            feed.load_state_dict(state)
            assert got + [batch["y"].tolist() for batch in DataLoader(feed, batch_size=None)] == want


def test_a_data_loader_that_would_make_batches_of_batches_is_refused() -> None:
    with _pipeline().feed(output="torch") as feed, pytest.raises(PlanError, match=r"batches of batches(.|\n)*batch_size=None"):
        next(iter(DataLoader(feed, batch_size=2)))


def test_ragged_batches_become_nested_tensors() -> None:
    ds = ps.from_arrays(np.arange(1, 7)).map(lambda n: {"tokens": np.arange(n)}).ragged_batch(3)

    def nested(batch: Any) -> Any:
        tokens = batch["tokens"]
        return torch.nested.nested_tensor_from_jagged(tokens["values"], tokens["row_splits"])

    with ds.feed(output=ps.Torch(transform=nested)) as feed:
        rows = [row.tolist() for batch in feed for row in batch.unbind()]
    assert rows == [list(range(n)) for n in range(1, 7)]


def test_a_feed_of_tensors_leaves_no_cycle() -> None:
    gc.collect()
    with _pipeline().feed(output="torch") as feed:
        for batch in feed:
            del batch
    del feed
    assert not [one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.dtype == torch.float32 and one.shape == (4, 3)]
