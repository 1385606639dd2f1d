"""PyTorch's datasets behind from_source and from_stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest

import penstock as ps
from penstock.errors import PlanError, SpecError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, get_worker_info  # noqa: E402

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

    with made().feed(executor="threads", num_workers=4) as feed:
        whole = labels(feed)
    assert sorted(whole) == [number for number in range(COUNT) if number != 77]
    with made().feed(executor="threads", num_workers=3) as feed:
        head = labels(next(feed) for _ in range(9))
        state = json.loads(json.dumps(feed.state_dict()))
    with made().feed(executor="threads", num_workers=1) as feed:
        feed.load_state_dict(state)
        assert head + labels(feed) == whole


def test_an_error_names_its_element() -> None:
    with (
        pytest.raises(ValueError, match="number 77") as caught,
        ps.from_source(Rows()).batch(10).feed(executor="threads", num_workers=3) as feed,
    ):
        list(feed)
    assert any("index 77 (element 77 of Rows)" in note for note in caught.value.__notes__)
    with ps.from_source(Rows()).batch(10).feed(on_error=ps.Skip(1)) as feed:
        assert labels(feed) == [number for number in range(COUNT) if number != 77]


def test_getitems_is_asked_for_whole_blocks_and_tensors_become_arrays() -> None:
    source = Blocks()
    with ps.from_source(source).shuffle(seed=1).batch(100).feed(executor="threads", num_workers=2) as feed:
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
        assert head + [batch.tolist() for batch in rest(feed)] == whole


class Fed(IterableDataset):  # type: ignore[misc]
    """Delivers a dataset of Penstock, by a feed that is made in the process that iterates, or was made before."""

    def __init__(self, elements: ps.Dataset | ps.Feed) -> None:
        self.elements = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_feed_in_workers_of_a_data_loader_is_refused_and_num_workers_0_delivers_each_element_once(method: str) -> None:
    dataset = ps.from_arrays(np.arange(20))
    with pytest.raises(RuntimeError, match=r"(?s)PlanError: a feed in worker .* give the DataLoader num_workers=0"):
        list(DataLoader(Fed(dataset), batch_size=None, num_workers=2, multiprocessing_context=method))
    assert [int(x) for x in DataLoader(Fed(dataset), batch_size=None, num_workers=0)] == list(range(20))


@pytest.mark.usefixtures("fork_server")
def test_a_feed_that_a_data_loader_hands_to_its_workers_is_refused() -> None:
    with ps.from_arrays(np.arange(20)).feed(executor="threads", num_workers=1) as feed:
        assert next(feed) == 0
        with pytest.raises(RuntimeError, match=r"(?s)PlanError: a feed in worker .* give the DataLoader num_workers=0"):
            list(DataLoader(Fed(feed), batch_size=None, num_workers=2, multiprocessing_context="fork"))
        with pytest.raises(PlanError, match="a feed cannot be pickled or copied"):
            list(DataLoader(Fed(feed), batch_size=None, num_workers=2, multiprocessing_context="spawn"))
        assert [int(x) for x in rest(feed)] == list(range(1, 20))


def test_a_dataset_that_workers_of_a_data_loader_index_delivers_each_element_once() -> None:
    loader = DataLoader(ps.from_arrays(np.arange(20)), batch_size=5, num_workers=2, multiprocessing_context="fork")
    assert torch.cat(list(loader)).tolist() == list(range(20))


def test_unbatch_takes_the_tensors_that_batch_takes() -> None:
    rows = [
        {"x": torch.full((3,), number), "half": torch.tensor(number / 2), "word": f"w{number}", "ids": [number, 1]} for number in range(7)
    ]
    ds = ps.from_source(rows)
    with ds.batch(3).unbatch().feed(executor="threads", num_workers=2) as feed:
        back = list(feed)
    tensors = (
        ps.from_arrays(np.arange(12).reshape(6, 2))
        .batch(4)
        .map(lambda batch: {"x": torch.from_numpy(batch.copy()), "y": torch.arange(len(batch))})
    )
    with tensors.unbatch().feed(executor="threads", num_workers=2) as feed:
        parts = list(feed)
    assert [type(row["x"]) for row in back + parts] == [np.ndarray] * 13
    assert [(row["x"].tolist(), float(row["half"]), row["word"], row["ids"].tolist()) for row in back] == [
        ([number] * 3, number / 2, f"w{number}", [number, 1]) for number in range(7)
    ]
    assert [(row["x"].tolist(), int(row["y"])) for row in parts] == [([2 * i, 2 * i + 1], i % 4) for i in range(6)]
    with ps.from_source([torch.tensor(3)]).unbatch().feed() as feed, pytest.raises(SpecError, match="equal first dimensions"):
        list(feed)
