"""Batches copied to a device in one piece. A CPU takes the place of the device: all of it is the same, but for streams and events.

Streams and events of CUDA are written down here, as PyTorch describes them, to see when a buffer is free again. The real ones are in
`benchmarks/gpu/proof.py`.
"""

from __future__ import annotations

import collections
import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interop.resuming import require_counted

import penstock as ps
from penstock._contracts.options import Options
from penstock._engine.slots import SlotPool, anonymous_memory
from penstock.feed.compiled import Compiled
from penstock.feed.feed import Feed

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from penstock.adapters.torch import CudaOutput, HostOutput, PackedOutput, _registered  # noqa: E402

DTYPES = ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8")
Pair = collections.namedtuple("Pair", "x y")


class Counting(PackedOutput):
    """Counts the copies, and holds where they lie."""

    def __init__(self, depth: int = 2, transform: Callable[[Any], Any] | None = None) -> None:
        super().__init__(torch, torch.device("cpu"), depth, transform)
        self.copied: list[int] = []
        self.addresses: set[int] = set()

    def _begin(self, buffer: Any) -> Any:
        self.copied.append(len(buffer))
        self.addresses.add(buffer.data_ptr())
        return super()._begin(buffer)

    def given(self, batch: Any, group: list[Any] | None = None) -> Any:
        """Return what becomes of a batch."""
        return self.receive(self.send(batch, [batch] if group is None else group))


def _feed(ds: ps.Dataset, output: PackedOutput, **options: Any) -> Feed:
    return Feed(Compiled(ds._root, Options(output="torch", **options), output))


def _leased(*leaves: tuple[tuple[int, ...], Any]) -> list[Any]:
    """Return arrays in one buffer, as `.batch()` makes them, filled."""
    some = [(shape, np.dtype(dtype)) for shape, dtype in leaves]
    arrays = SlotPool(anonymous_memory).lease(some).arrays(some)
    rng = np.random.default_rng(7)
    for array in arrays:
        array[...] = rng.integers(0, 100, array.shape).astype(array.dtype)
    return arrays


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in _leaves(value)]
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in _leaves(value)]
    return [tree]


def assert_same(got: Any, want: Any) -> None:
    """Compare trees of tensors, with their types, dtypes, shapes and strides."""
    assert type(got) is type(want)
    for one, other in zip(_leaves(got), _leaves(want), strict=True):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert torch.equal(one, other)
        else:
            assert np.array_equal(one, other)


# -- one batch -------------------------------------------------------------------------------------------------------------------------


def test_arrays_of_each_dtype_in_one_buffer_take_one_copy() -> None:
    arrays = _leased(*(((5, 3), dtype) for dtype in DTYPES), ((5,), "i1"), ((5, 0), "f4"), ((5, 1, 2), "c16"))
    batch = {f"{number}": array for number, array in enumerate(arrays)}
    output = Counting()
    got = output.given(batch)
    assert_same(got, HostOutput(torch).send(batch, []))
    assert len(output.copied) == 2  # that of the buffer, and that of the two arrays of the other byte order
    assert not any(one._is_view() for one in got.values())
    assert all(one.data_ptr() % one.element_size() == 0 for one in got.values())


def test_a_batch_is_copied_and_does_not_change_with_its_buffer() -> None:
    arrays = _leased(((4, 3), "f4"), ((4,), "i8"))
    want = [array.copy() for array in arrays]
    got = Counting().given(arrays)
    for array in arrays:
        array[:] = 0
    assert all(np.array_equal(one.numpy(), other) for one, other in zip(got, want, strict=True))


@pytest.mark.parametrize(
    "batch",
    [
        {"x": np.arange(12.0).reshape(3, 4), "y": np.arange(3), "name": np.array(["a", "b", "c"], object), "n": 7},
        Pair(np.float32(2.5), (np.arange(6)[::-1], [np.bool_(True), None, "text"])),
        [np.array(3), np.zeros((0, 4), np.float32), np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)],
        {"padded": {"values": np.ones((3, 2)), "mask": np.ones((3, 2), bool)}, "date": np.array(["2026-01-01"], "datetime64[D]")},
        np.broadcast_to(np.arange(3, dtype=np.int8), (2, 3)),
        np.arange(6, dtype=">i4"),
        np.int64(5),
        np.frombuffer(b"read only", np.uint8),
        {"x": torch.arange(6).reshape(2, 3), "half": torch.ones(3, dtype=torch.bfloat16), "array": np.arange(3)},
        {"x": torch.arange(6).reshape(2, 3).t(), "conjugate": torch.ones(2, dtype=torch.complex64).conj(), "empty": torch.empty(0, 2)},
    ],
    ids=str,
)
def test_what_lies_in_no_buffer_of_the_feed_is_gathered_and_takes_one_copy(batch: Any) -> None:
    output = Counting()
    assert_same(output.given(batch), HostOutput(torch).send(batch, []))
    assert len(output.copied) == 1


def test_strides_are_kept_where_a_copy_to_a_device_keeps_them() -> None:
    (images,) = _leased(((2, 4, 5, 3), "u1"))
    permuted = images.transpose(0, 3, 1, 2)
    output = Counting()
    for array in (permuted, permuted.copy(order="K"), images[:, :, :2], permuted[:, 1:]):
        want = torch.from_numpy(array).to("cpu", copy=True)
        got = output.given(array)
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
    assert output.copied[0] == images.nbytes + 8  # a view of all of it is copied with its buffer: 120 bytes, up to the next cache line


def test_views_at_odd_places_of_a_buffer_have_the_same_values() -> None:
    (raw,) = _leased(((64,), "u1"))
    batch = {"odd": raw[3:43].view("f4"), "even": raw[8:16].view("f8"), "all": raw}
    assert_same(Counting().given(batch), HostOutput(torch).send(batch, []))


def test_a_small_part_of_a_buffer_is_gathered_and_the_rest_is_not_copied() -> None:
    images, labels = _leased(((8, 1000), "u1"), ((8,), "i4"))
    output = Counting()
    got = output.given({"labels": labels, "crop": images[:, :10]})
    assert np.array_equal(got["labels"].numpy(), labels)
    assert np.array_equal(got["crop"].numpy(), images[:, :10])
    assert output.copied == [64 + 128]


def test_an_array_beside_the_buffer_takes_a_second_copy() -> None:
    images, labels = _leased(((8, 1000), "u1"), ((8,), "i4"))
    output = Counting()
    assert_same(output.given([images, labels, np.arange(8)]), HostOutput(torch).send([images, labels, np.arange(8)], []))
    assert output.copied == [8064, 64]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_that_are_more_than_bytes_go_by_themselves() -> None:
    weights = torch.ones(3, requires_grad=True)
    batch = {
        "sparse": torch.eye(3).to_sparse(),
        "weights": weights,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "meta": torch.empty(2, device="meta"),
    }
    output = Counting()
    got = output.given({key: value for key, value in batch.items() if key != "meta"})
    assert output.copied == []
    assert torch.equal(got["sparse"].to_dense(), torch.eye(3))
    got["weights"].sum().backward()
    assert weights.grad is not None
    assert isinstance(got["parameter"], torch.nn.Parameter)
    assert [row.tolist() for row in got["nested"].unbind()] == [[1, 1], [1, 1, 1]]
    meta = PackedOutput(torch, torch.device("meta"), 2)
    assert meta.receive(meta.send(batch["meta"], [])) is batch["meta"]


def test_a_tensor_that_is_changed_in_place_is_no_change_of_the_others_for_autograd() -> None:
    x, y = Counting().given(_leased(((4, 3), "f4"), ((4,), "f4")))
    weights = torch.ones(3, requires_grad=True)
    loss = (x @ weights).sum()  # keeps x
    y.mul_(2)
    loss.backward()
    assert torch.equal(weights.grad, x.sum(0))


def test_a_batch_taken_under_inference_mode_is_an_everyday_tensor_and_so_is_the_next() -> None:
    output, arrays = Counting(), _leased(((4, 3), "f4"))
    with torch.inference_mode():
        (first,) = output.given(arrays)
    (second,) = output.given(arrays)
    weights = torch.ones(3, requires_grad=True)
    for one in (first, second):
        (one.mul_(1) @ weights).sum().backward()
    assert torch.equal(weights.grad, 2 * first.sum(0))


# -- several batches in one buffer -----------------------------------------------------------------------------------------------------


def test_batches_of_one_buffer_take_one_copy_and_the_next_buffer_another() -> None:
    output = Counting()
    for number in (1, 2):
        x, y = _leased(((12, 3), "f4"), ((12,), "i8"))
        group = [{"x": x[begin : begin + 4], "y": y[begin : begin + 4]} for begin in (8, 4, 0)]
        for batch in group[::-1]:
            want = HostOutput(torch).send(batch, [])
            assert_same(output.given(batch, group), want)
            group.pop()
        assert len(output.copied) == number


def test_a_batch_whose_neighbours_are_not_handed_over_with_it_is_gathered() -> None:
    x, y = _leased(((12, 100), "f4"), ((12,), "i8"))
    output = Counting()
    for begin in (0, 4, 8):  # each is changed behind the copy of the one before, as a map in place of the user's does
        batch = {"x": x[begin : begin + 4], "y": y[begin : begin + 4]}
        batch["x"] += 1
        assert_same(output.given(batch), HostOutput(torch).send(batch, []))
    assert output.copied == [1600 + 64] * 3


def _pipeline(count: int = 400, batch_size: int = 4) -> ps.Dataset:
    def element(n: Any, rng: Any) -> dict[str, Any]:
        return {"x": np.full((3, 5), n, np.float32) + rng.random(), "y": int(n), "name": f"n{n}", "ok": bool(n % 2)}

    return ps.from_arrays(np.arange(count)).shuffle(seed=7).map(element, seed=3).batch(batch_size)


SOME: dict[str, tuple[Callable[[], ps.Dataset], dict[str, Any]]] = {
    "inline": (_pipeline, {"num_workers": 0}),
    "threads": (_pipeline, {"num_workers": 4, "executor": "threads"}),
    "processes": (_pipeline, {"num_workers": 2, "executor": "processes"}),
    "a short last batch": (lambda: _pipeline(399, 7), {}),
    "maps in place behind the batch": (
        lambda: _pipeline().map(lambda batch: {**batch, "x": np.multiply(batch["x"], 2, out=batch["x"])}),
        {"num_workers": 4, "executor": "threads"},
    ),
    "a map behind the batch leaves a field out": (lambda: _pipeline().map(lambda batch: {"y": batch["y"]}), {}),
    "skipped": (
        lambda: ps.from_arrays(np.arange(100)).map(lambda n: {"y": 1 // (n % 7 and 1), "x": np.full(9, n)}).batch(4),
        {"on_error": ps.Skip()},
    ),
    "padded": (lambda: ps.from_arrays(np.arange(100)).map(lambda n: {"y": n, "x": np.full(1 + n % 9, n, np.float32)}).padded_batch(8), {}),
    "collated": (
        lambda: ps.from_arrays(np.arange(100)).batch(8, collate_fn=lambda rows: {"t": torch.tensor(rows), "a": np.stack(rows)}),
        {},
    ),
    "elements": (lambda: _pipeline().unbatch(), {}),
}


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("depth", [0, 2, 9])
def test_all_kept_batches_are_those_of_a_feed_without_a_device(name: str, depth: int) -> None:
    make, options = SOME[name]
    with make().feed(output="torch", **options) as feed:
        want = list(feed)
    with _feed(make(), output := Counting(depth), **options) as feed:
        kept = list(feed)
    gc.collect()
    assert len(kept) == len(want)
    for got, expected in zip(kept, want, strict=True):
        assert_same(got, expected)
    assert len(output.copied) <= 1.1 * len(want)  # an element has numbers beside its arrays


def test_small_batches_take_far_fewer_copies_than_there_are() -> None:
    rows = {"x": np.arange(40_000, dtype=np.float32).reshape(-1, 4), "y": np.arange(10_000)}
    with _feed(ps.from_arrays(rows).batch(10), output := Counting()) as feed:
        assert [int(batch["y"][0]) for batch in feed] == list(range(0, 10_000, 10))
    assert len(output.copied) < 500


def test_what_is_copied_ahead_of_the_loop_changes_nothing() -> None:
    require_counted(lambda ds: _feed(ds, Counting(4)))


def test_buffers_are_used_again_when_their_batches_are_copied() -> None:
    ds = ps.from_arrays(np.zeros((800, 40_000), np.float32)).map(lambda x: x + 1)
    for batched, most in ((ds.batch(4), 40), (ds.batch(4, collate_fn=np.stack), 6)):
        with _feed(batched, output := Counting(), memory_bytes=4 << 20) as feed:
            for batch in feed:
                del batch
        assert len(output.copied) == 200
        assert len(output.addresses) < most


def test_a_transform_gets_the_batch_on_the_device() -> None:
    with _feed(_pipeline(), Counting(transform=lambda batch: batch["y"] * 2)) as feed:
        assert next(feed).tolist() == [2 * n for n in next(iter(_pipeline()))["y"].tolist()]


# -- streams and events ----------------------------------------------------------------------------------------------------------------


class _Event:
    done = False

    def query(self) -> bool:
        return self.done


class _Stream:
    """A stream whose events are done when the test says so. `waited` are those that it waits for."""

    def __init__(self, device: Any = None) -> None:
        self.events: list[_Event] = []
        self.waited: list[_Event] = []

    def record_event(self) -> _Event:
        self.events.append(_Event())
        return self.events[-1]

    def wait_event(self, event: _Event) -> None:
        self.waited.append(event)

    def synchronize(self) -> None:
        for event in self.events:
            event.done = True


class _Cuda:
    Stream = _Stream

    def __init__(self) -> None:
        self.now = self.training = _Stream()
        self.registered: dict[int, tuple[int, int]] = {}
        self.device_now, self.synchronized = "cuda:0", False

    def current_stream(self, device: Any = None) -> _Stream:
        return self.now

    @contextlib.contextmanager
    def _selected(self, stream: _Stream) -> Any:
        before, self.now = self.now, stream
        yield
        self.now = before

    def stream(self, stream: _Stream) -> Any:
        """Return a context that can be entered again and again, as PyTorch's."""
        cuda = self

        class Selected:
            def __enter__(self) -> None:
                self.context = cuda._selected(stream)
                self.context.__enter__()

            def __exit__(self, *error: Any) -> None:
                self.context.__exit__(*error)

        return Selected()

    # -- memory that is registered: (address, size, flags) by address; a size of 13 cannot be

    def cudart(self) -> Any:
        return self

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> int:  # noqa: N802
        assert self.device_now == "cuda:3"
        if num_bytes == 13:
            return 801
        self.registered[address] = num_bytes, flags
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        assert self.device_now == "cuda:3"
        assert self.synchronized
        del self.registered[address]
        return 0

    def synchronize(self) -> None:
        self.synchronized = True

    def device(self, device: str) -> Any:
        cuda = self

        class On:
            def __enter__(self) -> None:
                self.before, cuda.device_now = cuda.device_now, device

            def __exit__(self, *error: Any) -> None:
                cuda.device_now = self.before

        return On()


class _Torch:
    """PyTorch with these streams."""

    def __init__(self) -> None:
        self.cuda = _Cuda()
        self.launched: list[Any] = []

    def ones(self, size: int, *, device: Any) -> None:
        self.launched.append(device)
        raise RuntimeError("CUDA error: operation not supported")  # as CUDA says of an error before

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def on_streams(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an output on a CPU with streams, its copying stream, the training stream, and the buffers recorded for that."""
    recorded: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: recorded.append((tensor.data_ptr(), stream)))
    pretended = _Torch()
    output = CudaOutput(pretended, torch.device("cpu"), 2)
    return output, output._stream, pretended.cuda.training, recorded


def test_the_training_stream_waits_for_each_copy_once_a_batch_and_its_buffer_is_recorded_once(on_streams: Any) -> None:
    output, copying, training, recorded = on_streams
    batch = _leased(((4, 3), "f4"), ((4,), "i8"), ((4,), "?"))
    got = output.receive(output.send(batch, [batch]))
    assert_same(got, HostOutput(torch).send(batch, []))
    assert training.waited == copying.events
    assert len(copying.events) == 1
    assert recorded == [(got[0].untyped_storage().data_ptr(), training)]


def test_batches_of_one_copy_are_waited_for_once_by_each_stream_that_takes_one(on_streams: Any) -> None:
    output, copying, training, recorded = on_streams
    (x,) = _leased(((12, 3), "f4"))
    group = [x[begin : begin + 4] for begin in (8, 4, 0)]
    sent = [output.send(batch, group) for batch in group[::-1]]
    for one in sent[:2]:
        output.receive(one)
    other = output._torch.cuda.now = _Stream()
    output.receive(sent[2])
    assert len(copying.events) == 1
    assert training.waited == other.waited == copying.events
    assert [stream for _, stream in recorded] == [training, other]


def test_a_buffer_comes_back_when_its_copy_has_ended_and_not_before(on_streams: Any) -> None:
    output, copying, _, _ = on_streams
    sizes = [((8,), np.dtype(np.int64))]
    pool = SlotPool(anonymous_memory)
    for _ in range(3):
        batch = pool.lease(sizes).arrays(sizes)
        output.receive(output.send(batch, [batch]))
        del batch
    assert pool.num_returned == 0
    copying.events[0].done = copying.events[2].done = True  # the third is behind the second
    loose = np.arange(8)
    output.receive(output.send(loose, [loose]))
    assert pool.num_returned == 1
    output.finish()
    assert pool.num_returned == 3


def test_a_buffer_for_what_is_gathered_is_used_again_when_its_copy_has_ended(on_streams: Any) -> None:
    output, copying, _, _ = on_streams
    for number in range(6):
        batch = {"x": np.full(9, number), "y": number}
        assert output.receive(output.send(batch, [batch]))["x"].tolist() == [number] * 9
    assert output._slots.num_bytes == 6 * 128
    for _ in range(20):
        output.receive(output.send(np.arange(9), []))
        copying.synchronize()
    assert output._slots.num_bytes <= 8 * 128


@pytest.mark.parametrize("name", ["threads", "processes", "padded", "collated", "maps in place behind the batch"])
def test_a_feed_on_streams_gives_the_same_batches(on_streams: Any, name: str) -> None:
    output, copying, training, _ = on_streams
    make, options = SOME[name]
    with make().feed(output="torch", **options) as feed:
        want = list(feed)
    got = []
    with _feed(make(), output, **options) as feed:
        for number, batch in enumerate(feed):
            got.append(batch)
            for event in copying.events[: number // 2]:
                event.done = True
    for one, expected in zip(got, want, strict=True):
        assert_same(one, expected)
    assert set(copying.events[: len(training.waited)]) <= set(training.waited)
    assert not output._on_their_way


def test_memory_is_registered_on_the_device_and_no_more_when_its_copies_have_ended() -> None:
    pretended = _Torch()
    end = _registered(pretended, "cuda:3", 4096, 8192)
    assert pretended.cuda.registered == {4096: (8192, 1)}
    assert pretended.cuda.device_now == "cuda:0"
    end()
    assert not pretended.cuda.registered


def test_memory_that_cannot_be_registered_is_used_as_it_is_and_said() -> None:
    with pytest.warns(RuntimeWarning, match=r"cannot be pinned \(CUDA error 801\), and copies to cuda:3 are slower: raise the limit"):
        _registered(pretended := _Torch(), "cuda:3", 4096, 13)()
    assert pretended.launched == ["cuda:3"]  # else a kernel of the program would report it
