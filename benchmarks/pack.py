"""Documents of lognormal length packed into rows of 2,048 tokens, batches of 8 rows, on one core; and the share of padding in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size
from numpy.typing import NDArray

_LENGTH = 2048
_NUM_BINS = 64
_BATCH_SIZE = 8
_MEAN, _SIGMA = 400, 1.0
Document = NDArray[np.uint16]
Bins = list[list[Document]]


def _documents(run: rounds.Run) -> list[Document]:
    """Return documents of 1 to 2,048 tokens, about 400 in the mean: 50,000 of them in the full size."""
    lengths = np.random.default_rng(7).lognormal(np.log(_MEAN) - _SIGMA**2 / 2, _SIGMA, run.size.num_small)
    return [np.arange(length, dtype=np.uint16) for length in np.clip(lengths, 1, _LENGTH).astype(int).tolist()]


def _first_fit(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Put each document into the first of 64 rows that has room; when none has, give the fullest row. Penstock's rule."""
    bins: Bins = []
    used: list[int] = []
    for document in documents:
        size = len(document)
        place = next((place for place, tokens in enumerate(used) if tokens + size <= _LENGTH), len(bins))
        if place == len(bins):
            if len(bins) == _NUM_BINS:
                place = used.index(max(used))
                del used[place]
                yield bins.pop(place)
            bins.append([])
            used.append(0)
            place = len(bins) - 1
        bins[place].append(document)
        used[place] += size
        if used[place] == _LENGTH:
            del used[place]
            yield bins.pop(place)
    yield from bins


def _emit_all(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Put each document into the first of 64 rows that has room; when none has, give all rows: the rule that Grain publishes."""
    bins: Bins = [[] for _ in range(_NUM_BINS)]
    used = [0] * _NUM_BINS
    for document in documents:
        size = len(document)
        place = next((place for place, tokens in enumerate(used) if tokens + size <= _LENGTH), None)
        if place is None:
            yield from bins
            bins, used, place = [[] for _ in range(_NUM_BINS)], [0] * _NUM_BINS, 0
        bins[place].append(document)
        used[place] += size
    yield from (one for one in bins if one)


def _waste(rule: Callable[[Iterable[Document]], Iterator[list[Document]]], documents: list[Document]) -> float:
    num_rows = sum(1 for _ in rule(documents))
    return 1 - sum(map(len, documents)) / (num_rows * _LENGTH)


def _row(documents: list[Document]) -> dict[str, NDArray[Any]]:
    tokens, segments, positions = np.zeros(_LENGTH, np.uint16), np.zeros(_LENGTH, np.int32), np.zeros(_LENGTH, np.int32)
    start = 0
    for number, document in enumerate(documents, 1):
        stop = start + len(document)
        tokens[start:stop] = document
        segments[start:stop] = number
        positions[start:stop] = np.arange(len(document))
        start = stop
    return {"tokens": tokens, "segment_ids": segments, "positions": positions}


def _timed(run: rounds.Run, epoch: Callable[[], Iterable[Any]], documents: list[Document], waste: float) -> dict[str, Any]:
    out = drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds)
    count = out["num_epochs"] * sum(map(len, documents))
    return {**out, "count": count, "rate": count / out["seconds"], "waste": waste}


def _loop(rule: Callable[[Iterable[Document]], Iterator[list[Document]]]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        documents = _documents(run)

        def epoch() -> Iterator[Any]:
            rows = []
            for one in rule(documents):
                rows.append(_row(one))
                if len(rows) == _BATCH_SIZE:
                    yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}
                    rows = []

        return _timed(run, epoch, documents, _waste(rule, documents))

    return measure


def _penstock(split: bool, **options: Any) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        documents = _documents(run)
        packed = ps.from_source(documents).pack_sequences(_LENGTH, num_bins=_NUM_BINS, split=split)
        with packed.feed(executor="inline") as feed:
            for _ in feed:
                pass
        waste = feed.stats().padding_share
        assert waste is not None
        dataset = packed.batch(_BATCH_SIZE, drop_remainder=True)
        out = _timed(run, lambda: dataset.feed(**options), documents, waste)
        return {**out, "waste_beside_emit_all": waste / _waste(_emit_all, documents)}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """The documents are made in each process."""


CLAIM = rounds.Claim(
    name="pack",
    title=f"pack_sequences({_LENGTH}) of documents of about {_MEAN} tokens, batches of {_BATCH_SIZE}, against the same rule in a bare loop",
    unit="tokens/s",
    prepare=_nothing,
    reference="loop_first_fit",
    also=("waste", "waste_beside_emit_all"),
    targets=(
        rounds.Target(contestant="penstock_inline", metric="rate", sense=">=", bound=5e6),
        rounds.Target(contestant="penstock_inline", metric="waste_beside_emit_all", sense="<=", bound=1.0),
        rounds.Target(contestant="penstock_inline_split", metric="rate", sense=">=", bound=5e6),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "loop_first_fit": _loop(_first_fit),
            "loop_emit_all": _loop(_emit_all),
            "penstock_inline": _penstock(split=False, executor="inline"),
            "penstock_inline_split": _penstock(split=True, executor="inline"),
            "penstock_threads": _penstock(split=False),
        },
    )
