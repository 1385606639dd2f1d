"""PyTorch's datasets behind from_source and from_stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, get_worker_info  # noqa: E402

COUNT = 300


class Rows(Dataset):  # type: ignore[misc]
    """Map style, elements as NumPy arrays."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 77:
            raise ValueError("number 77")
        return {"x": np.full(3, index, np.float32), "label": index}


class Blocks(Rows):
    """One that is asked for several at once, as PyTorch does."""

    asked: int = 0

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((3,), index), "label": index}

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.asked += 1
        return [self[index] for index in indices]


class Stream(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        assert get_worker_info() is None
        return iter(range(COUNT))


def labels(batches: Any) -> list[int]:
    return [int(label) for batch in batches for label in batch["label"]]


def test_a_map_style_dataset_is_read_by_number_shuffled_and_resumed_exactly() -> None:
    def made() -> ps.Dataset:
        return ps.from_source(Subset(Rows(), [number for number in range(COUNT) if number != 77])).shuffle(seed=4).batch(16)

    with made().feed(num_workers=4) as feed:
        whole = labels(feed)
    assert sorted(whole) == [number for number in range(COUNT) if number != 77]
    with made().feed(num_workers=3) as feed:
        head = labels(next(feed) for _ in range(9))
        state = json.loads(json.dumps(feed.state_dict()))
    with made().feed(num_workers=1) as feed:
        feed.load_state_dict(state)
        assert head + labels(feed) == whole


def test_an_error_names_its_element() -> None:
    with pytest.raises(ValueError, match="number 77") as caught, ps.from_source(Rows()).batch(10).feed(num_workers=3) as feed:
        list(feed)
    assert any("index 77 (element 77 of Rows)" in note for note in caught.value.__notes__)
    with ps.from_source(Rows()).batch(10).feed(on_error=ps.Skip(1)) as feed:
        assert labels(feed) == [number for number in range(COUNT) if number != 77]


def test_getitems_is_asked_for_whole_blocks_and_tensors_become_arrays() -> None:
    source = Blocks()
    with ps.from_source(source).shuffle(seed=1).batch(100).feed(num_workers=2) as feed:
        batches = list(feed)
    assert sorted(labels(batches)) == list(range(COUNT))
    assert batches[0]["x"].shape == (100, 3)
    assert 0 < source.asked < COUNT


def test_tensor_datasets_and_their_kin_are_sources() -> None:
    tensors = TensorDataset(torch.arange(COUNT * 2).reshape(COUNT, 2), torch.arange(COUNT))
    ds = ps.from_source(ConcatDataset([tensors, tensors]))
    assert len(ds) == 2 * COUNT
    x, label = ds[COUNT + 5]
    assert np.asarray(x).tolist() == [10, 11]
    assert int(label) == 5
    x, label = next(iter(ds.shuffle(seed=1).batch(32)))
    assert isinstance(x, np.ndarray)
    assert (x.shape, label.shape) == ((32, 2), (32,))
    assert (x[:, 0] == 2 * label).all()


def test_an_iterable_dataset_is_a_stream() -> None:
    with ps.from_stream(Stream(), fast_forward=True).repeat(2).feed() as feed:
        head = [next(feed) for _ in range(COUNT + 40)]
        state = feed.state_dict()
    with ps.from_stream(Stream(), fast_forward=True).repeat(2).feed() as feed:
        feed.load_state_dict(state)
        assert head + list(feed) == [*range(COUNT)] * 2


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata looks it up in torch
def test_a_stateful_data_loader_goes_on_exactly() -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def made() -> ps.Dataset:
        return ps.from_stream(loaders.StatefulDataLoader(list(range(COUNT)), batch_size=7, collate_fn=np.array))

    whole = [batch.tolist() for batch in made()]
    with made().feed() as feed:
        head = [next(feed).tolist() for _ in range(11)]
        state = json.loads(json.dumps(feed.state_dict()))
    with made().feed() as feed:
        feed.load_state_dict(state)
        assert head + [batch.tolist() for batch in feed] == whole
