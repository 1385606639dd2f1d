"""SampleBatches: stacked batches from samples that are loaded one by one, a bad one left out by policy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import EmptyList, map_leaves, sizes_of, unflatten
from penstock._contracts.policy import Policy, Raise, Replace, Retry, Skip, checked_policy, decide, final
from penstock._engine.error_policy import is_interrupt
from penstock._ops.stack import BatchSpec
from penstock._plan.check import count_argument
from penstock._processes.failure import fit_to_raise
from penstock.enqueuer.given import is_spent
from penstock.errors import PlanError, SourceError, SpecError, TooManySkipped

__all__ = ["SampleBatches", "SkippedBatch"]

_KEPT = 100
_FEWEST = 100  # so many samples count as read for a rate, as in a feed: one bad sample among the first ten says little


class SkippedBatch(NamedTuple):
    """One sample that was left out: its number in the iterable, its key for `load` (None without `load`), and the error."""

    number: int
    key: Any
    error: Exception


class SampleBatches:
    """Load samples one by one and stack them to batches; what is to be done about a bad one is a policy, not a `print` and `continue`.

        batches = ps.SampleBatches(paths, 128, load=read_image, on_error=ps.Skip(limit=0.01))
        for images in batches:
            train(images)
        print(batches.num_samples, batches.num_skipped, batches.skipped)

    Batches stay full: the next good sample takes the place of a bad one. Bad is a sample whose `load` fails, or that does not fit the first
    one of the pass (another shape, dtype or structure). An error of the iterable itself is raised, for nothing can come behind it.
    It can be iterated again when `samples` can (a generator cannot: `SourceError`), from several threads not at once, and given to
    `GeneratorEnqueuer` as it is.

    Args:
        samples: arrays, numbers, or trees of them (dict, tuple); or keys, such as paths, for `load`.
        batch_size: samples of a batch.
        load: makes the sample of a key; None takes the samples as they are.
        on_error: `Raise()`, `Skip(...)`, or `Retry(...)`, which calls `load` again and ends in one of the others. As in a feed, a count
            as `limit` counts distinct samples of all passes, and a rate counts in each pass.
        drop_remainder: whether a last batch that is not full is left out.

    Attributes:
        num_samples: good samples so far, of all passes.
        num_skipped: samples left out so far, of all passes.
        skipped: the last hundred of them, as `SkippedBatch(number, key, error)`.

    Raises:
        PlanError: an argument is not what it should be; `Replace` is refused, for the next sample stands in anyway.
    """

    def __init__(
        self,
        samples: Iterable[Any],
        batch_size: int,
        *,
        load: Callable[[Any], Any] | None = None,
        on_error: Policy = Raise(),  # noqa: B008 - a value
        drop_remainder: bool = False,
    ) -> None:
        batch_size = count_argument(batch_size, "batch_size", "SampleBatches", least=1)
        if load is not None and not callable(load):
            raise PlanError(f"load={load!r} is not a function", where="SampleBatches()", fix="give a function of one key, or None")
        if not hasattr(samples, "__iter__"):
            raise PlanError(f"{type(samples).__name__!r} is not iterable", where="SampleBatches()", fix="give a list, a generator, ...")
        self._policy = checked_policy(on_error, "on_error", "SampleBatches()")
        if isinstance(final(self._policy), Replace):
            raise PlanError(
                "Replace has no meaning here: the next sample takes the place of a bad one anyway",
                where="SampleBatches(on_error=...)",
                fix="give ps.Skip(...)",
            )
        self._samples, self._batch_size, self._load, self._drop_remainder = samples, batch_size, load, bool(drop_remainder)
        self._was_read = False
        self.num_samples = 0
        self.num_skipped = 0
        self.skipped: deque[SkippedBatch] = deque(maxlen=_KEPT)
        self._bad: set[int] = set()  # numbers of the samples, where the limit counts them

    def __iter__(self) -> Iterator[Any]:
        """Give batches: trees of arrays with `batch_size` rows, in fresh memory; the last one may have fewer.

        Raises:
            SourceError: `samples` is a generator or another iterator that is at its end; of one that is no generator at the first batch.
            TooManySkipped: more samples were bad than `limit` allows; the last one's error is the cause.
            Exception: what `load` raised, or SpecError for a sample that does not fit, when the policy says so; with its number and key.
        """
        samples = iter(self._samples)
        if is_spent(samples):
            raise self._ended()
        return self._batches(samples)

    def _batches(self, samples: Iterator[Any]) -> Iterator[Any]:
        batch = _Rows(self._batch_size)
        num_read = num_skipped = 0
        for number, key in enumerate(samples):
            num_read += 1
            self._was_read = True
            try:
                batch.add(key if self._load is None else self._loaded(key), number)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                if not isinstance(error, Exception) or isinstance(decide(self._policy, error, _ALL_RETRIES), Raise):
                    raise fit_to_raise(error, self._words(number, key))  # noqa: B904
                num_skipped += 1
                self._skip(SkippedBatch(number, None if self._load is None else key, error), num_skipped, num_read)
                continue
            self.num_samples += 1
            if batch.num_rows == self._batch_size:
                yield batch.take()
        if not num_read and self._was_read and samples is self._samples:
            raise self._ended()
        if batch.num_rows and not self._drop_remainder:
            yield batch.take()

    def _ended(self) -> SourceError:
        return SourceError(
            f"the samples, a {type(self._samples).__name__}, are at their end and can be read only once",
            where="SampleBatches",
            fix="give a list, or an iterable whose __iter__ makes a new generator; or make another SampleBatches for each pass",
        )

    def _loaded(self, key: Any) -> Any:
        assert self._load is not None
        retries = 0
        while True:
            try:
                return self._load(key)
            except Exception as error:
                again = decide(self._policy, error, retries)
                if not isinstance(again, Retry):
                    raise
                wait_s = again.wait_s(retries)
            retries += 1
            time.sleep(wait_s)

    def _words(self, number: int, key: Any) -> str:
        return f"SampleBatches, sample {number}{'' if self._load is None else f' ({key!r})'}"

    def _skip(self, skipped: SkippedBatch, in_pass: int, num_read: int) -> None:
        """Count a sample; the error and its traceback keep no arrays alive.

        Raises:
            TooManySkipped: it is one too many.
        """
        self.num_skipped += 1
        self.skipped.append(skipped._replace(error=BaseException.with_traceback(skipped.error, None)))
        last = final(self._policy)
        assert isinstance(last, Skip)
        if isinstance(last.limit, float) and in_pass > last.limit * max(num_read, _FEWEST):
            found = f"{in_pass} of {num_read} samples of this pass were bad, the limit is {last.limit:.3g} of them"
        elif isinstance(last.limit, int):
            self._bad.add(skipped.number)
            if len(self._bad) <= last.limit:
                return
            found = f"{len(self._bad)} samples were bad, the limit is {last.limit}"
        else:
            return
        raise TooManySkipped(
            found,
            where=self._words(skipped.number, skipped.key),
            fix="look at `skipped`, or raise the limit; a rate, such as 0.01, is one of each pass",
        ) from skipped.error


_ALL_RETRIES = 1 << 62


class _Rows:
    """The batch that is being filled. The first sample of a pass says structure, shapes and dtypes of all."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._spec: BatchSpec | None = None
        self._first = 0
        self._arrays: list[NDArray[Any]] = []
        self.num_rows = 0

    def add(self, sample: Any, number: int) -> None:
        """Write a sample into the next row.

        Raises:
            SpecError: it cannot stand in a batch, or differs from the first one.
        """
        spec = self._spec
        if spec is None:
            spec = BatchSpec(sample, lambda: str(number))
            self._spec, self._first = spec, number
        if not self._arrays:
            self._arrays = [np.empty((self._batch_size, *sizes_of(leaf)), leaf.dtype) for leaf in spec.leaves]
        ordered = spec.ordered(sample)
        if not (spec.put(self._arrays, self.num_rows, ordered, None) or spec.put(self._arrays, self.num_rows, _settled(ordered), None)):
            BatchSpec(sample, lambda: str(number))  # a sample that can stand in no batch differs from none
            raise SpecError(
                f"two samples differ: {spec.difference(sample)}",
                where=f"SampleBatches, sample {self._first} and sample {number}",
                fix="make them equal in `load` (resize, crop, cast)",
            )
        self.num_rows += 1

    def take(self) -> Any:
        """Return the rows so far as a batch, and begin the next."""
        assert self._spec is not None
        arrays, self._arrays = [array[: self.num_rows] for array in self._arrays], []
        self.num_rows = 0
        return unflatten(self._spec.structure, iter(arrays))


def _settled(sample: Any) -> Any:
    """Return a sample with its empty lists as int64 arrays: the batch is there before the samples whose dtype they could take."""
    return map_leaves(lambda leaf: leaf.view(np.ndarray) if type(leaf) is EmptyList else leaf, sample)
