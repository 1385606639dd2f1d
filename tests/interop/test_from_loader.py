"""ps.from_dataloader: loaders in the style of public training scripts give the same elements, in tensors."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from torch.utils.data import (  # noqa: E402
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


class Pictures(Dataset):  # type: ignore[misc]
    """Bytes that are decoded, augmented and normalised, as torchvision datasets do."""

    def __init__(self, count: int = 53) -> None:
        self.blobs = [np.full((12, 12, 3), n % 251, np.uint8).tobytes() for n in range(count)]

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        pixels = torch.frombuffer(bytearray(self.blobs[index]), dtype=torch.uint8).reshape(12, 12, 3)
        return (pixels.permute(2, 0, 1).float() / 255 - 0.5) / 0.25, index


class Texts(Dataset):  # type: ignore[misc]
    """Token lists of different lengths, as language model scripts have."""

    def __len__(self) -> int:
        return 41

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": torch.arange(index % 7 + 1), "label": index}


def pad(samples: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [sample["input_ids"] for sample in samples]
    return {"input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), "label": torch.tensor([one["label"] for one in samples])}


class Detections(Dataset):  # type: ignore[misc]
    """Images with any number of boxes, which stay lists."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[Any, dict[str, Any]]:
        return torch.full((3, 4), float(index)), {"boxes": torch.zeros(index % 3, 4), "id": index}


def lists(samples: list[Any]) -> Any:
    return tuple(zip(*samples, strict=True))


class Lines(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        return iter([{"x": torch.tensor([float(n)])} for n in range(31)])


def _loaders() -> dict[str, Any]:
    tensors = TensorDataset(torch.arange(50.0).reshape(25, 2), torch.arange(25))
    parts = random_split(Pictures(), [40, 13], generator=torch.Generator().manual_seed(1))
    return {
        "images": DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=2, drop_last=False),
        "images, drop_last": DataLoader(Pictures(), batch_size=8, drop_last=True, num_workers=2),
        "tensors": DataLoader(tensors, batch_size=4, shuffle=True),
        "one by one": DataLoader(tensors, batch_size=None, shuffle=True),
        "texts": DataLoader(Texts(), batch_size=6, shuffle=True, collate_fn=pad, num_workers=2),
        "detections": DataLoader(Detections(), batch_size=4, collate_fn=lists, num_workers=2),
        "split": DataLoader(parts[0], batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3)),
        "subset": DataLoader(Subset(Pictures(), range(3, 30)), batch_size=5, sampler=RandomSampler(range(27))),
        "subset sampler": DataLoader(Pictures(), batch_size=5, sampler=SubsetRandomSampler(range(0, 50, 3))),
        "joined": DataLoader(ConcatDataset([Pictures(9), Pictures(12)]), batch_size=4, shuffle=True, timeout=30, num_workers=1),
        "stacked": DataLoader(StackDataset(a=Pictures(9), b=Pictures(9)), batch_size=2, shuffle=True),
        "stream": DataLoader(Lines(), batch_size=4),
    }


def _values(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tuple((key, _values(value)) for key, value in tree.items())
    if isinstance(tree, (list, tuple)):
        return tuple(_values(value) for value in tree)
    assert isinstance(tree, (torch.Tensor, int, float, str)), type(tree)
    return (str(tree.dtype), tuple(tree.shape), tree.numpy().tobytes()) if isinstance(tree, torch.Tensor) else tree


def _rows(batch: Any) -> Any:
    if isinstance(batch, dict):
        return list(zip(*map(_rows, batch.values()), strict=True))
    if isinstance(batch, (list, tuple)):
        return list(zip(*map(_rows, batch), strict=True))
    return [_values(row) for row in batch]


@pytest.mark.parametrize("name", list(_loaders()))
def test_a_feed_gives_the_elements_of_the_loader_in_each_epoch(name: str) -> None:
    loader = _loaders()[name]
    if name == "texts":  # padded to the longest of a batch, so rows differ with their company
        elements = _labels
    elif loader.batch_size is None:
        elements = _only
    elif name == "detections":
        elements = _samples
    else:
        elements = _rows
    want = Counter(row for batch in loader for row in elements(batch))
    ds = ps.from_dataloader(loader)
    with ds.feed() as feed:
        epochs = [list(feed), list(feed)]
    for epoch in epochs:
        assert Counter(row for batch in epoch for row in elements(batch)) == want
        if name not in ("one by one",):
            assert [len(elements(batch)) for batch in epoch] == [len(elements(batch)) for batch in loader]


def _labels(batch: Any) -> Any:
    return batch["label"].tolist()


def _only(element: Any) -> Any:
    return [_values(element)]


def _samples(batch: Any) -> Any:
    return [_values(sample) for sample in zip(*batch, strict=True)]


def test_shuffle_and_batch_stand_in_sight_and_a_run_resumes() -> None:
    ds = ps.from_dataloader(_loaders()["texts"], seed=5)
    assert "shuffle(seed=5)" in repr(ds)
    assert "batch(6, collate_fn=pad)" in repr(ds)
    with ds.feed() as feed:
        first = [_labels(next(feed)) for _ in range(3)]
        state = feed.state_dict()
        rest = [_labels(batch) for batch in feed]
    with ps.from_dataloader(_loaders()["texts"], seed=5).feed() as feed:
        feed.load_state_dict(state)
        assert [_labels(batch) for batch in feed] == rest
    assert sorted(label for labels in (*first, *rest) for label in labels) == list(range(41))


def test_options_of_the_loader_become_options_of_the_feed() -> None:
    loader = DataLoader(Pictures(), batch_size=8, num_workers=2, timeout=30, in_order=False)
    options = ps.from_dataloader(loader)._options
    assert (options.num_workers, options.stall_timeout_s, options.ordered, options.output) == (2, 30, False, "torch")
    assert ps.from_dataloader(DataLoader(Pictures(), batch_size=8))._options.num_workers == 0


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_distributed_sampler_keeps_its_ranks(drop_last: bool) -> None:
    data = TensorDataset(torch.arange(23))
    ranks = [DistributedSampler(data, num_replicas=3, rank=rank, seed=4, drop_last=drop_last) for rank in range(3)]
    found: list[int] = []
    for sampler in ranks:
        with ps.from_dataloader(DataLoader(data, batch_size=2, sampler=sampler)).feed() as feed:
            found += [int(row) for (batch,) in feed for row in batch]
    assert len(found) == (21 if drop_last else 24)
    assert len(set(found)) == (21 if drop_last else 23)


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (lambda data: DataLoader(data, sampler=WeightedRandomSampler([1.0] * 53, 53)), "the order of WeightedRandomSampler cannot be said"),
        (lambda data: DataLoader(data, sampler=RandomSampler(data, replacement=True)), "the order of RandomSampler cannot be said"),
        (lambda data: DataLoader(data, batch_sampler=[[0, 1], [2]]), r"the order of list cannot be said(.|\n)*bucket_by_length"),
        (lambda data: data, "Pictures is no torch DataLoader"),
    ],
)
def test_an_order_that_operators_cannot_say_is_named(loader: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        ps.from_dataloader(loader(Pictures()))


def test_what_threads_do_otherwise_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="worker_init_fn is not called"):
        ps.from_dataloader(DataLoader(Pictures(), num_workers=2, worker_init_fn=print))
    data = Pictures()
    with (
        open(tmp_path / "file", "wb+") as data.file,
        pytest.warns(UserWarning, match="holds an open file in 'file', and its workers are threads"),
    ):
        ps.from_dataloader(DataLoader(data, num_workers=2))


def test_functions_run_in_the_threads_of_the_feed() -> None:
    seen = set()

    class Named(Pictures):
        def __getitem__(self, index: int) -> Any:
            seen.add(threading.current_thread())
            return super().__getitem__(index)

    with ps.from_dataloader(DataLoader(Named(), batch_size=2, num_workers=2)).feed() as feed:
        for _ in feed:
            pass
    assert threading.main_thread() not in seen
    seen.clear()
    with ps.from_dataloader(DataLoader(Named(), batch_size=2)).feed() as feed:
        for _ in feed:
            pass
    assert seen == {threading.main_thread()}


def test_an_error_in_collate_fn_is_raised_with_its_stage_and_element() -> None:
    def fails(samples: list[Any]) -> Any:
        raise KeyError("no label")

    loader = DataLoader(Texts(), batch_size=4, collate_fn=fails, num_workers=2)
    with ps.from_dataloader(loader).feed() as feed, pytest.raises(KeyError, match="no label") as caught:
        next(feed)
    assert any("stage 'batch'" in note and "index 0" in note for note in caught.value.__notes__)


def test_batches_of_any_object_pass_through() -> None:
    loader = DataLoader(Texts(), batch_size=4, collate_fn=lambda samples: io.BytesIO(b"x" * len(samples)))
    with ps.from_dataloader(loader).feed() as feed:
        assert [len(batch.getvalue()) for batch in feed] == [4] * 10 + [1]
