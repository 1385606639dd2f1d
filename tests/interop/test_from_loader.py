"""ps.from_dataloader: how a loader's arguments work in a feed, what is left alone, and what is refused."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from feeds import resumed, state_behind

import penstock as ps
from penstock.errors import PlanError, StateMismatch

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    get_worker_info,
)


class Numbers(Dataset):  # type: ignore[misc]
    """Sample i is i, a draw of each global generator, and the process, thread and object that made it."""

    def __init__(self, count: int = 40) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        draws = torch.rand(()).item(), random.random(), np.random.rand()
        return {"index": index, "draws": draws, "made": (os.getpid(), threading.get_ident(), id(self))}


class Lines(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def fail_at(samples: list[Any]) -> Any:
    """Leave the samples as they are, but not sample 9."""
    if any(sample["index"] == 9 for sample in samples):
        raise KeyError("9 has no label")
    return samples


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


class Failing(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 6:
            raise ValueError("6 is not expected")
        return super().__getitem__(index)


def samples_of(ds: ps.Dataset, **options: Any) -> list[Any]:
    with ds.feed(**options) as feed:
        return [sample for batch in feed for sample in batch]


# -- options ----------------------------------------------------------------------------------------------------------------------


def test_options_of_the_loader_become_options_of_the_feed() -> None:
    loader = DataLoader(Numbers(), batch_size=8, num_workers=2, timeout=30, in_order=False)
    options = ps.from_dataloader(loader)._options
    assert (options.num_workers, options.stall_timeout_s, options.ordered, options.output) == (2, 30, False, "numpy")
    assert ps.from_dataloader(DataLoader(Numbers(), batch_size=8))._options.num_workers == 0


def test_the_plan_names_dataset_and_sampler_and_has_the_loaders_length() -> None:
    ds = ps.from_dataloader(DataLoader(Numbers(), batch_size=16, shuffle=True))
    assert repr(ds) == "Dataset (3 elements)\n  from_dataloader(Numbers, RandomSampler, batch_size=16)\n  map(Numbers)"
    with ds.feed() as feed:
        assert len(feed) == 3


def test_a_length_that_is_not_true_is_given_up_when_the_sampler_is_drawn() -> None:
    class Endless(RandomSampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            while True:
                yield from super().__iter__()

    loader = DataLoader(Numbers(), batch_size=8, sampler=Endless(range(40)), collate_fn=as_they_are)
    with ps.from_dataloader(loader).feed() as feed:
        assert len(feed) == 5
        indices = [sample["index"] for batch in islice(feed, 15) for sample in batch]
    assert [sorted(indices[begin : begin + 40]) for begin in (0, 40, 80)] == [list(range(40))] * 3
    assert indices[:40] != indices[40:80] != indices[80:]


def test_operators_behind_it_get_the_batches() -> None:
    ds = ps.from_dataloader(DataLoader(TensorDataset(torch.arange(10)), batch_size=4, num_workers=1)).map(_sum)
    with ds.feed() as feed:
        assert list(feed) == [6, 22, 17]


def _sum(batch: Any) -> int:
    assert type(batch[0]) is torch.Tensor
    return int(batch[0].sum())


def test_output_torch_hands_tensors_through() -> None:
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=4)
    with ps.from_dataloader(loader).feed(output=ps.Torch(transform=lambda batch: batch[0] + 1)) as feed:
        assert next(feed).tolist() == [1, 2, 3, 4]


# -- where it runs ----------------------------------------------------------------------------------------------------------------


def test_without_workers_all_calls_are_in_the_loops_thread_and_with_some_in_so_many_processes() -> None:
    loader = DataLoader(Numbers(), batch_size=2, collate_fn=as_they_are)
    here = samples_of(ps.from_dataloader(loader))
    assert {sample["made"] for sample in here} == {(os.getpid(), threading.get_ident(), id(loader.dataset))}
    there = samples_of(ps.from_dataloader(DataLoader(Numbers(), batch_size=2, collate_fn=as_they_are, num_workers=2)))
    places = {sample["made"] for sample in there}
    assert len(places) == 2
    assert os.getpid() not in {pid for pid, _, _ in places}
    assert [sample["draws"] for sample in here] == [sample["draws"] for sample in there]


def test_each_thread_has_a_copy_and_seeds_nothing_and_a_warning_says_so() -> None:
    barrier, met = threading.Barrier(2), set[int]()

    def together(samples: list[Any]) -> list[Any]:
        if threading.get_ident() not in met:  # both threads take part
            met.add(threading.get_ident())
            barrier.wait(30)
        return samples

    loader = DataLoader(Numbers(), batch_size=2, collate_fn=together, num_workers=2)
    torch.manual_seed(3)
    want = torch.Generator().manual_seed(3)
    with pytest.warns(UserWarning, match="in threads, draws of a dataset from torch, random and numpy.random are not reproducible"):
        samples = samples_of(ps.from_dataloader(loader), executor="threads")
    copies = {(thread, number) for pid, thread, number in (sample["made"] for sample in samples)}
    assert len(copies) == len({number for _, number in copies}) == 2
    assert id(loader.dataset) not in {number for _, number in copies}
    drawn = torch.rand(40, generator=want)
    assert sorted(sample["draws"][0] for sample in samples) == pytest.approx(sorted(drawn.tolist()))


def test_what_cannot_be_copied_is_called_by_one_thread_at_a_time() -> None:
    class Locked(Numbers):
        def __init__(self) -> None:
            super().__init__(16)
            self.lock = threading.Lock()

        def __getitem__(self, index: int) -> Any:
            assert self.lock.acquire(blocking=False)
            self.lock.release()
            return super().__getitem__(index)

    loader = DataLoader(Locked(), batch_size=2, collate_fn=as_they_are, num_workers=2)
    with pytest.warns(UserWarning, match=r"Locked cannot be copied for each thread \(TypeError: .*\), so one at a time uses it"):
        samples = samples_of(ps.from_dataloader(loader), executor="threads")
    assert {sample["made"][2] for sample in samples} == {id(loader.dataset)}


def test_what_cannot_be_pickled_runs_in_the_loops_thread_with_the_same_numbers_and_the_loops_are_left() -> None:
    class Drawing(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> Any:
            return index, threading.get_ident(), torch.rand(1).item(), random.random()

    class Locked(Drawing):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    def run(dataset: Any) -> tuple[list[Any], list[float], list[str]]:
        torch.manual_seed(3)
        loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, collate_fn=as_they_are)
        with ps.from_dataloader(loader).feed() as feed:
            samples = []
            draws = []
            for batch in feed:
                samples += batch
                draws.append(torch.rand(1).item())
            return samples, draws, feed.stats().notices

    samples, draws, notices = run(Locked())
    wanted, draws_of_processes, _ = run(Drawing())
    assert [(index, *drawn) for index, _, *drawn in samples] == [(index, *drawn) for index, _, *drawn in wanted]
    assert draws == draws_of_processes
    assert {thread for _, thread, *_ in samples} == {threading.get_ident()}
    assert "'Locked': called in the thread of the training loop, and not in worker processes: a value of type _thread.lock" in notices[0]


def test_the_default_dtype_of_the_program_is_that_of_worker_processes() -> None:
    class Floats(Numbers):
        def __getitem__(self, index: int) -> Any:
            return torch.zeros(1)

    torch.set_default_dtype(torch.float64)
    try:
        with ps.from_dataloader(DataLoader(Floats(), batch_size=8, num_workers=1)).feed() as feed:
            assert {batch.dtype for batch in feed} == {torch.float64}
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_generators_of_the_training_loop_are_left_as_they_are() -> None:
    def draws() -> tuple[Any, ...]:
        return torch.rand(2).tolist(), random.gauss(0, 1), np.random.randn(), np.random.rand()

    def begin() -> None:
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        random.gauss(0, 1)
        np.random.randn()  # both have half of a pair left

    begin()
    want = [draws() for _ in range(4)]
    begin()
    loader = DataLoader(Numbers(), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(1))
    with ps.from_dataloader(loader).feed() as feed:
        assert [draws() for _ in feed] == want
    assert loader.generator.get_state().equal(torch.Generator().manual_seed(1).get_state())


def test_a_generator_of_another_kind_is_put_back_too() -> None:
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.MT19937(3))
    try:
        state = str(np.random.get_state(legacy=False))
        samples_of(ps.from_dataloader(DataLoader(Numbers(4), collate_fn=as_they_are)))
        assert str(np.random.get_state(legacy=False)) == state
    finally:
        np.random.set_bit_generator(before)


def test_there_is_no_worker_info_in_the_program() -> None:
    samples_of(ps.from_dataloader(DataLoader(Numbers(4), num_workers=1, collate_fn=as_they_are)))
    assert get_worker_info() is None


# -- epochs -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_distributed_sampler_gives_its_rank_what_it_gives_under_the_epoch_that_was_set(drop_last: bool) -> None:
    data = TensorDataset(torch.arange(23))
    for rank in range(3):
        sampler = DistributedSampler(data, num_replicas=3, rank=rank, seed=4, drop_last=drop_last)
        with ps.from_dataloader(DataLoader(data, batch_size=2, sampler=sampler)).feed() as feed:
            for epoch in (0, 1, 5):
                sampler.set_epoch(epoch)
                assert [int(row) for (batch,) in feed for row in batch] == list(sampler)


def test_a_sampler_that_gives_others_at_a_resume_is_an_error_that_says_what_to_call() -> None:
    data = TensorDataset(torch.arange(24))
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    ds = ps.from_dataloader(DataLoader(data, batch_size=2, sampler=sampler))
    with ds.feed() as feed:
        next(feed)
        early = feed.state_dict()
        list(feed)
        sampler.set_epoch(1)
        first, state, rest = next(iter(feed)), feed.state_dict(), list(sampler)[2:]
    assert first[0].tolist() == list(sampler)[:2]
    with ds.feed() as feed:
        feed.load_state_dict(early)
        with pytest.raises(StateMismatch) as caught:
            next(feed)
    assert (
        "the sampler gives other indices in epoch 0 than before the state was saved: the first 1 batches have check sum"
        in caught.value.what
    )
    assert "call sampler.set_epoch(0), if it has that, before the loop" in caught.value.fix
    assert [int(row) for (batch,) in resumed(ds, json.loads(json.dumps(state))) for row in batch] == rest


def test_a_state_of_the_end_of_an_epoch_goes_on_with_the_next_one_without_a_look_back() -> None:
    data = TensorDataset(torch.arange(24))
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    ds = ps.from_dataloader(DataLoader(data, batch_size=2, sampler=sampler))
    with ds.feed() as feed:
        list(feed)
        state = feed.state_dict()
    sampler.set_epoch(1)
    assert [int(row) for (batch,) in resumed(ds, state) for row in batch] == list(sampler)


def test_a_dataset_of_another_length_is_refused_at_a_resume() -> None:
    state = state_behind(ps.from_dataloader(DataLoader(Numbers(40), batch_size=2)))
    with ps.from_dataloader(DataLoader(Numbers(41), batch_size=2)).feed() as feed, pytest.raises(StateMismatch, match="samples"):
        feed.load_state_dict(state)


# -- errors -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_sample_that_fails_raises_its_own_error_with_index_and_batch(num_workers: int) -> None:
    loader = DataLoader(Failing(), batch_size=4, num_workers=num_workers)
    with ps.from_dataloader(loader).feed() as feed:
        assert next(feed)["index"].tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="6 is not expected") as caught:
            next(feed)
    notes = "\n".join(caught.value.__notes__)
    assert "penstock: sample 6 of Failing, number 2 of batch 1" in notes
    assert re.search("stage 'Failing', worker .*, element epoch 0 index 1", notes)
    assert num_workers == 0 or "in __getitem__\n    raise ValueError" in notes


def test_skip_leaves_out_the_batch_of_a_sample_or_of_collate_fn_that_fails() -> None:
    for loader in (DataLoader(Failing(12), batch_size=4), DataLoader(Numbers(12), batch_size=4, collate_fn=fail_at)):
        with ps.from_dataloader(loader).feed(on_error=ps.Skip(limit=1)) as feed:
            assert len(list(feed)) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: DataLoader(Lines()), "Lines is an IterableDataset, which says itself what each worker reads(.|\n)*ps.from_stream"),
        (Numbers, "Numbers is no torch DataLoader"),
    ],
)
def test_what_is_no_loader_of_indices_is_refused(given: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        ps.from_dataloader(given())
