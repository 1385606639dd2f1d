"""PyTorch's datasets behind from_source and from_stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest

import penstock as ps
from penstock.errors import PlanError, SpecError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

COUNT = 300


class Blocks(Dataset):  # type: ignore[misc]
    """A dataset that is asked for several elements at once, as PyTorch does."""

    asked: int = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((3,), index), "label": index}

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.asked += 1
        return [self[index] for index in indices]


def test_getitems_is_asked_for_whole_blocks_and_tensors_become_arrays() -> None:
    source = Blocks()
    with ps.from_source(source).shuffle(seed=1).batch(100).feed(executor="threads", num_workers=2) as feed:
        batches = list(feed)
    assert sorted(int(label) for batch in batches for label in batch["label"]) == list(range(COUNT))
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
