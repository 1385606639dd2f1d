"""SampleBatches: stacked batches from samples that are loaded one by one, a bad one left out by policy."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from penstock._contracts.policy import Policy, Raise, Retry, checked_policy, decide, final
from penstock._ops.stack import BatchSpec, stack_rows
from penstock._plan.check import count_argument
from penstock._workers.failure import fit_to_raise
from penstock.errors import PlanError, SourceError, SpecError, TooManySkipped

_KEPT = 100


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
        on_error: `Raise()`; `Skip(...)` or `Replace(...)`, which are the same here; or `Retry(...)`, which calls `load` again and ends in
            one of the others. As in a feed, a count as `limit` counts distinct samples of all passes, and a rate counts in each pass.
        drop_remainder: whether a last batch that is not full is left out.

    Attributes:
        num_samples: good samples so far, of all passes.
        num_skipped: samples left out so far, of all passes.
        skipped: the last hundred of them, as `SkippedBatch(number, key, error)`.

    Raises:
        PlanError: an argument is not what it should be.
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
        if load is not None and not callable(load):
            raise PlanError(f"load={load!r} is not a function", where="SampleBatches()", fix="give a function of one key, or None")
        if not hasattr(samples, "__iter__"):
            raise PlanError(f"{type(samples).__name__!r} is not iterable", where="SampleBatches()", fix="give a list, a generator, ...")
        self._samples, self._load, self._drop_remainder = samples, load, drop_remainder
        self._batch_size = count_argument(batch_size, "batch_size", "SampleBatches", least=1)
        self._policy = checked_policy(on_error, "SampleBatches()", of_feed=False)
        self._was_read = False
        self.num_samples = 0
        self.num_skipped = 0
        self.skipped: deque[SkippedBatch] = deque(maxlen=_KEPT)
        self._bad: set[int] = set()  # numbers of the samples, where the limit counts them

    def __iter__(self) -> Iterator[Any]:
        """Give batches: trees of arrays with `batch_size` rows, in fresh memory; the last one may have fewer.

        Raises:
            SourceError: `samples` is a generator or another iterator that is at its end.
            TooManySkipped: more samples were bad than `limit` allows; the last one's error is the cause.
            Exception: what `load` raised, or SpecError for a sample that does not fit, when the policy says so; with its number and key.
        """
        spec: BatchSpec | None = None
        rows: list[Any] = []
        num_read = num_skipped = 0
        samples = iter(self._samples)
        for number, key in enumerate(samples):
            num_read, self._was_read = number + 1, True
            where = f"SampleBatches, sample {number}{'' if self._load is None else f' ({key!r})'}"
            try:
                sample = self._loaded(key)
                spec = spec or BatchSpec(sample, lambda: str(number))  # noqa: B023 - called at once
                difference = spec.difference(sample)
                if difference is not None:
                    raise SpecError(f"not as the samples before: {difference}", where=where, fix="make them equal (resize, crop, cast)")
                rows.append(deepcopy(sample))  # the next one may be written into the same array
            except Exception as error:
                if isinstance(decide(self._policy, error, sys.maxsize), Raise):
                    raise fit_to_raise(error, where)  # noqa: B904
                num_skipped += 1
                self._skip(SkippedBatch(number, None if self._load is None else key, error), where, num_skipped, num_read)
                continue
            self.num_samples += 1
            if len(rows) == self._batch_size:
                yield _taken(rows)
        if not num_read and self._was_read and samples is self._samples:
            raise SourceError(
                f"the samples, a {type(samples).__name__}, are at their end and can be read only once",
                where="SampleBatches",
                fix="give a list, or an iterable whose __iter__ makes a new generator; or make another SampleBatches for each pass",
            )
        if rows and not self._drop_remainder:
            yield _taken(rows)

    def _loaded(self, key: Any) -> Any:
        retries = 0
        while True:
            try:
                return key if self._load is None else self._load(key)
            except Exception as error:
                again = decide(self._policy, error, retries)
                if not isinstance(again, Retry):
                    raise
                wait_s = again.wait_s(retries)
            retries += 1
            time.sleep(wait_s)

    def _skip(self, skipped: SkippedBatch, where: str, in_pass: int, num_read: int) -> None:
        """Count a sample; the error and its traceback keep no arrays alive.

        Raises:
            TooManySkipped: it is one too many.
        """
        self.num_skipped += 1
        self.skipped.append(skipped._replace(error=BaseException.with_traceback(skipped.error, None)))
        last = final(self._policy)
        limit = None if isinstance(last, Raise) else last.limit
        if isinstance(limit, int):
            self._bad.add(skipped.number)
        bad = in_pass if isinstance(limit, float) else len(self._bad)
        if not isinstance(last, Raise) and bad > last.most(num_read):
            of = f" of the {num_read} of this pass" if isinstance(limit, float) else ""
            raise TooManySkipped(
                f"{bad} samples were bad, the limit is {limit:.3g}{of}",
                where=where,
                fix="look at `skipped`, or raise the limit; a rate, such as 0.01, is one of each pass",
            ) from skipped.error


def _taken(rows: list[Any]) -> Any:
    """Return the rows as a batch, and let go of them."""
    batch = stack_rows(rows, str)
    rows.clear()
    return batch
