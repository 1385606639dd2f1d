"""A shuffled epoch over WebDataset tar shards, as batches of bytes and labels: JPEG files of about 100 kB, samples of 1 kB.

webdataset runs in one process and in a DataLoader with two; Penstock is held against the faster of them. Its index is built before the
clock, once for all epochs. webdataset shuffles in a buffer of 1,000 samples, Penstock all samples. The bytes and labels of an epoch
are compared with what was written, by check sums, before the clock.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size, jpeg_list, read_listing

_BATCH_SIZE = 64
_SHARD_JPEGS, _SHARD_SMALL = 250, 5000
_BUFFER = 1000  # samples in webdataset's shuffle buffer, as its documentation shows it
_NUM_WORKERS = 2


def _folder(root: Path, kind: str, size: Size) -> Path:
    return root / f"tar-{kind}-{size.num_jpegs if kind == 'jpegs' else size.num_small}"


def _prepare(size: Size, root: Path) -> None:
    """Write the shards with Python's tarfile, and Penstock's index beside them: it is built once for all epochs, as the shards are."""
    import penstock as ps

    pairs = read_listing(jpeg_list(root, size.num_jpegs))
    _write(_folder(root, "jpegs", size), len(pairs), _SHARD_JPEGS, lambda number: (Path(pairs[number][0]).read_bytes(), pairs[number][1]))
    random = np.random.default_rng(5)
    _write(_folder(root, "small", size), size.num_small, _SHARD_SMALL, lambda number: (random.bytes(1000), number % 10))
    for kind in ("jpegs", "small"):
        ps.read_tar(str(_folder(root, kind, size) / "*.tar"))
        _write_sums(_folder(root, kind, size))


def _write(folder: Path, count: int, per_shard: int, make: Callable[[int], tuple[bytes, int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, count, per_shard):
        path = folder / f"train-{first // per_shard:05}.tar"
        if path.exists():
            continue
        partial = path.with_suffix(".partial")
        with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(first, min(first + per_shard, count)):
                data, label = make(number)
                for field, content in (("jpg", data), ("cls", b"%d" % label)):
                    info = tarfile.TarInfo(f"{number:08}.{field}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        partial.replace(path)


def _write_sums(folder: Path) -> None:
    """Write the check sums of all samples, read by Python's tarfile."""
    path = folder / "sums.npy"
    if path.exists():
        return
    sums = []
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as archive:
            contents = [bytes(file.read()) for member in archive if (file := archive.extractfile(member)) is not None]
        sums += [_sum(data, int(label)) for data, label in zip(contents[::2], contents[1::2], strict=True)]
    np.save(path, np.sort(np.array(sums, np.int64)))


def _sum(data: bytes, label: int) -> int:
    return zlib.crc32(data) * 100 + label


def _checker(folder: Path) -> Callable[[Iterable[Any]], None]:
    def check(batches: Iterable[Any]) -> None:
        sums = [_sum(data, int(label)) for batch in batches for data, label in zip(*_leaves(batch), strict=True)]
        expected = np.load(folder / "sums.npy")
        # Each process of a DataLoader leaves out the short batch at its end.
        lost = len(expected) - len(sums)
        assert 0 <= lost < _NUM_WORKERS * _BATCH_SIZE, f"an epoch has {len(sums)} of {len(expected)} samples"
        extra = Counter(sums) - Counter(expected.tolist())
        assert not extra, f"{extra.total()} samples of an epoch are not, or not so often, in the files"

    return check


def _leaves(batch: Any) -> tuple[Any, Any]:
    return (batch["jpg"], batch["cls"]) if isinstance(batch, dict) else (batch[0], batch[1])


def _run(kind: str, batches: Callable[[Path], Iterable[Any]]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        folder = _folder(run.root, kind, run.size)
        result = drive.epochs(lambda: batches(folder), _BATCH_SIZE, run.size.min_seconds, _checker(folder))
        del result["batch"]  # one gives lists of bytes and the other arrays of them
        return result

    return measure


def _penstock(num_workers: int | None = None) -> Callable[[Path], Iterable[Any]]:
    def batches(folder: Path) -> Iterable[Any]:
        import penstock as ps

        ds = ps.read_tar(str(folder / "*.tar"), fields=["jpg", "cls"], decode="basic").shuffle(seed=1)
        batched = ds.batch(_BATCH_SIZE, drop_remainder=True)
        return batched.feed() if num_workers is None else batched.feed(executor="threads", num_workers=num_workers)

    return batches


def _pipeline(folder: Path) -> Any:
    try:
        import webdataset
    except ImportError:
        raise rounds.Missing("webdataset is not installed") from None
    urls = sorted(map(str, folder.glob("*.tar")))
    dataset = webdataset.WebDataset(urls, shardshuffle=len(urls), nodesplitter=None, empty_check=False).shuffle(_BUFFER, initial=_BUFFER)
    return dataset.to_tuple("jpg", "cls").map_tuple(bytes, int).batched(_BATCH_SIZE, partial=False)


def _in_processes(folder: Path) -> Iterable[Any]:
    loader = rounds.torch().utils.data.DataLoader
    return loader(_pipeline(folder), batch_size=None, num_workers=_NUM_WORKERS)  # type: ignore[no-any-return]


_CONTESTANTS = {
    f"{name}{end}": _run(kind, batches)
    for kind, end in (("jpegs", ""), ("small", "_small"))
    for name, batches in (
        ("webdataset", _pipeline),
        ("dataloader_of_webdataset", _in_processes),
        ("penstock", _penstock()),
        ("penstock_1_worker", _penstock(1)),
    )
}

CLAIM = rounds.Claim(
    name="tar",
    title="A shuffled epoch over WebDataset tar shards: bytes and labels in batches of 64",
    unit="samples/s",
    prepare=_prepare,
    reference="",
    references={name: "webdataset_best_small" if name.endswith("_small") else "webdataset_best" for name in _CONTESTANTS},
    best={f"webdataset_best{end}": (f"webdataset{end}", f"dataloader_of_webdataset{end}") for end in ("", "_small")},
    targets=tuple(
        rounds.Target(contestant=name, metric="ratio", sense=">=", bound=2.0)
        for name in ("penstock", "penstock_small")
        if importlib.util.find_spec("webdataset")
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, _CONTESTANTS)
