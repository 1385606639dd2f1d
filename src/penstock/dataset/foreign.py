"""Names of tf.data, PyTorch and Hugging Face that programs are moved from, and what Penstock has in their place.

No name of these tables is an attribute or a parameter, so `dir()`, completion and type checkers do not show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from penstock.errors import UnknownArgument

F = TypeVar("F", bound=Callable[..., Any])

_WORKERS = "feed(num_workers=...) sets the workers of the whole pipeline, and map(concurrency=...) gives one function threads of its own"
_ROWS = "ps.from_arrays(arrays) makes an element of each row"
_PART = "ds.skip(a).take(n) is a part of a dataset; ds.sample(int(mask.sum()), mask, replacement=False) has those of a mask, shuffled"
_MIX = "a.mix(b, weights=[...]) takes elements of several datasets in turn"
_SPLIT = "train, val = ds.split(0.9, seed=...) divides a dataset at random"
_BUCKETS = "ds.bucket_by_length(length_fn, boundaries, batch_sizes) makes batches of elements of like lengths"
_CSV = "ps.read_csv(pattern, columns={...}) reads the records"
_GENERATOR = "ps.from_generator(fn) over a function that reads ds and yields what you need"
_PARSE = "ps.parse_example(features) goes into ds.map(), and ps.read_tfrecord(pattern, features=features) parses what it reads"
_DTYPES = "leave it out: shapes and dtypes are those of the elements, a Python int is int64"
_FN = "its name is fn here, and it is the first argument"
_SEED = "shuffle(seed=...) and map(fn, seed=...) take a number"

_ATTRIBUTES = {
    "AUTOTUNE": 'leave it out: feed(num_workers="auto") is the default, and a feed chooses by itself how far it reads ahead',
    "CocoDetection": "ps.read_coco(images, annotations) reads it",
    "ConcatDataset": "a.concatenate(b) joins datasets",
    "CsvDataset": _CSV,
    "DataLoader": "ps.from_dataloader(loader) takes one; ps.from_source(dataset).shuffle(seed=...).batch(n).feed() is one",
    "DistributedSampler": "ds.shard(num_ranks, rank) is the part of one rank",
    "ImageFolder": "ps.read_images(folder) reads it",
    "IterableDataset": "ps.from_stream(iterable) reads one",
    "RayOptions": "feed(executor=ps.Ray(...)) takes its arguments",
    "Subset": _PART,
    "TFRecordDataset": "ps.read_tfrecord(pattern) reads the files",
    "TensorDataset": _ROWS,
    "TextLineDataset": "ps.read_text(pattern) reads the lines",
    "WebDataset": "ps.read_tar(pattern) reads the shards",
    "apply": "call the function on the dataset: fn(ds)",
    "as_numpy_iterator": "iterate ds.feed(): its batches are NumPy arrays",
    "bucket_by_sequence_length": _BUCKETS,
    "cardinality": "len(ds) is the number of elements",
    "choose_from_datasets": _MIX,
    "column_names": "ds.spec() has the fields of an element",
    "element_spec": "ds.spec() gives shapes and dtypes",
    "dense_to_ragged_batch": "ds.ragged_batch(n) joins arrays of several lengths",
    "from_generator": "ps.from_generator(fn) reads a generator",
    "from_tensor_slices": _ROWS,
    "from_tensors": "ps.from_source([element]) has one element",
    "group_by_window": _BUCKETS,
    "ignore_errors": "ds.feed(on_error=ps.Skip(limit=...)) leaves out elements that fail",
    "image_dataset_from_directory": 'ps.read_images(folder).map(ps.image.decode("data")) reads the images of a folder for each class',
    "interleave_datasets": _MIX,
    "list_files": "ps.read_files(pattern) reads whole files, and ps.read_tfrecord, read_tar and read_text take a pattern themselves",
    "load": "ps.read_packed(folder) reads what ps.pack(ds, folder) wrote",
    "make_csv_dataset": _CSV,
    "parse_single_example": _PARSE,
    "random_split": _SPLIT,
    "range": "ps.from_source(range(n)) counts",
    "rebatch": "ds.unbatch().batch(n) makes other batches",
    "reduce": "functools.reduce(fn, ds, start) goes through the elements",
    "sample_from_datasets": _MIX,
    "save": "ps.pack(ds, folder) writes a dataset, and ps.read_packed(folder) reads it",
    "scan": _GENERATOR,
    "select": _PART,
    "snapshot": "ds.cache(folder) keeps the elements in a folder",
    "take_while": _GENERATOR,
    "text_dataset_from_directory": 'ps.read_files("folder/*/*.txt") reads the texts, with their paths',
    "timeseries_dataset_from_array": "ps.from_arrays(array).window(size, shift=1, drop_remainder=True) makes windows",
    "train_test_split": _SPLIT,
    "unique": _GENERATOR,
}

_KEYWORDS = {
    "args": "give a function without arguments, such as functools.partial(fn, *args)",
    "batch_sampler": "ds.batch(n) makes batches, and ds.shuffle(seed=...) the order",
    "batch_size": "call ds.batch(n) before feed()",
    "compression_type": "its name is compression here",
    "collate_fn": "ds.batch(n, collate_fn=fn) calls it, in a worker",
    "batched": "ds.batch(n).map(fn) gives fn whole batches",
    "deterministic": "the order is kept unless feed(ordered=False) is called",
    "drop_last": "ds.batch(n, drop_remainder=True) leaves out the last batch if it is not full",
    "filename": "its name is path here",
    "func": _FN,
    "function": _FN,
    "generator": _SEED,
    "map_func": _FN,
    "multiprocessing_context": "leave it out: feed(num_workers=N) forks its worker processes from a process of their own",
    "num_parallel_calls": _WORKERS,
    "num_parallel_reads": _WORKERS,
    "num_proc": _WORKERS,
    "output_shapes": _DTYPES,
    "output_signature": _DTYPES,
    "output_types": _DTYPES,
    "persistent_workers": "leave it out: make one feed, and each `for` over it is the next epoch",
    "predicate": _FN,
    "prefetch_factor": "leave it out: a feed reads ahead as far as its memory_bytes= allow",
    "sampler": "the order belongs to the dataset: ds.shuffle(seed=...), ds.shard(num_ranks, rank), ds.take(n)",
    "shuffle": "call ds.shuffle(seed=...) before batch() and feed()",
    "stop_on_empty_dataset": 'True is stop="first_exhausted", the default; with "all_exhausted" a dataset that has ended starts over',
    "timeout": "its name is stall_timeout_s here, in seconds",
    "worker_init_fn": "leave it out: a function with a parameter rng gets random numbers of its own in map(fn, seed=...)",
}

_MOVED = {
    "device": "output=ps.Torch(device=...)), or ps.Jax(device=...)",
    "pin_memory": "output=ps.Torch(pin_memory=...))",
    "depth": "output=ps.Torch(depth=...)), or ps.Jax(depth=...)",
    "device_transform": "output=ps.Torch(transform=...)), or ps.Jax(transform=...)",
    "sharding": "output=ps.Jax(sharding=...))",
    "ray_options": "executor=ps.Ray(...))",
    "quarantine": "on_error=ps.Skip(quarantine=...)), or at the map whose elements it is for",
    "on_read_error": "on_error=...), with an on_error= at each map that differs",
    "record": "",
    "replay": "",
}
"""Options of earlier versions, and what the call is now; nothing where they are gone."""


def attribute_hint(name: str) -> str:
    """Return what to use in place of an attribute of another library, with a colon before it; "" for any other name."""
    return f": {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else ""


def unknown_argument(what: str, where: str, name: str, known: Iterable[str]) -> UnknownArgument:
    """Return the error of a call with an argument that it does not have: what replaces it, or the name that is nearest to it.

    Args:
        what: says that it is not there.
        where: the call.
        name: of the argument.
        known: the names that the call has.
    """
    from difflib import get_close_matches  # 10 ms to import

    near = [] if name in _KEYWORDS else get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownArgument(f"{what}{meant}", where=where, fix=_KEYWORDS.get(name, f"the arguments are {', '.join(sorted(known))}"))


def moved_option(name: str, call: str) -> UnknownArgument | None:
    """Return the error of a call with an option of an earlier version, which names its new form; None for any other name."""
    now = _MOVED.get(name)
    if now is None:
        return None
    what = f"{call}({name}=...) is now {call}({now}" if now else f"{call}({name}=...) is gone"
    fix = "write it in the new form" if now else "leave it out: with ordered=True each run has the same order"
    return UnknownArgument(what, where="feed options", fix=fix)


def checked_keywords(fn: F) -> F:
    """Let a function or method refuse keywords that it does not have with `unknown_argument`; to look at, it is the same function."""
    code = fn.__code__
    known = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]} - {"self"}

    @wraps(fn)
    def call(*values: Any, **named: Any) -> Any:
        for name in named.keys() - known:
            raise unknown_argument(f"{fn.__name__}() has no argument {name!r}", f"{fn.__name__}({name}=...)", name, known)
        return fn(*values, **named)

    return cast("F", call)
