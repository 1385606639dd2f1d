"""Opens what the user wants to measure, a list file, a folder, a glob, an array file or records, and says which operators run on it."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.cli.screen import place_of
from penstock.errors import PenstockError, PlanError, SourceError

TFRECORD = "TFRecord files"
_READERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    TFRECORD: (".tfrecord", "read_tfrecord", {"compression": "auto"}),
    "tar files": (".tar", "read_tar", {"decode": "basic"}),
    "Parquet files": (".parquet", "read_parquet", {}),
    "files of JSON lines": (".jsonl", "read_jsonl", {}),
}
"""By what files are: how their names end, and what reads them. In names of TFRecord files more may follow."""


def records_kind(source: str) -> str | None:
    """Say by its name what a path, glob or URL of record files is; None for anything else."""
    name = source.rpartition("/")[2].lower()
    return next((kind for kind, (ending, *_) in _READERS.items() if name.endswith(ending) or (ending in name and kind == TFRECORD)), None)


def open_records(source: str) -> tuple[Any, str] | None:
    """Open a path, glob or URL of record files; None when its name is not one of such.

    Elements of TFRecord files are {"record": bytes}: their features stand nowhere in the file.

    Raises:
        SourceError: a URL of something else.
        PenstockError, OSError: the files cannot be opened.
    """
    import penstock as ps

    kind = records_kind(source)
    if kind is not None:
        _, reader, options = _READERS[kind]
        return getattr(ps, reader)(source, **options), kind
    if "://" in source and not _is_glob(source):
        raise SourceError(
            f"what {source!r} holds cannot be told by its name", where="penstock SOURCE", fix=write_a_module("read_files", source)
        )
    return None


def _is_glob(source: str) -> bool:
    return any(mark in source for mark in "*?[{")


def write_a_module(reader: str, source: str, options: str = "") -> str:
    """Say how a dataset that the command line cannot describe is given to it."""
    return f"write `ds = ps.{reader}({source!r}{options})`, and what else it needs, in a module of yours, and give module:ds"


_WHERE = "penstock bench SOURCE"
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


Operators = dict[str, Callable[..., Any]]
"""The steps on an element, by the names that they have in the report."""


class Opened(NamedTuple):
    """What will be measured: a dataset without operators, and the operators."""

    dataset: Any
    kind: str
    operators: Operators
    side: int | None

    def pipeline(self) -> Any:
        """Return the dataset, shuffled, with all operators."""
        dataset = self.dataset.shuffle(seed=0)
        for name, function in self.operators.items():
            dataset = dataset.map(function, seed=0, name=name)
        return dataset


def open_source(source: str, *, root: str | None, function: str | None, crop: int | None, resize: int | None) -> Opened:
    """Open SOURCE and choose its operators.

    Args:
        source: a list file of `path label` lines, a folder of images, a glob pattern, or a .npy or .npz file.
        root: the folder that the paths of a list file start from; None for the list's own.
        function: "module:function" to run on each element in place of the image operators; None for none.
        crop: pixels of a random resized crop; None for 224.
        resize: pixels of a centre crop without randomness; None for a random crop.

    Raises:
        SourceError: nothing is there, or it holds no elements.
        PlanError: arguments that do not go together, or a function that cannot be imported.
        MissingExtra: images without an image decoder.
    """
    dataset, kind = open_plain(source, root, "bench")
    if len(dataset) == 0:
        raise SourceError(f"{source!r} holds no elements", where=_WHERE, fix="give a source with at least one element")
    if function is not None or kind == "arrays":
        if crop is not None or resize is not None:
            raise PlanError(
                "--crop and --resize are for image files without --map: an array file is read as it is",
                where=_WHERE,
                fix="leave them out; --map module:function is for a function of your own",
            )
        own = {} if function is None else {function.partition(":")[2]: imported_function(function, f"penstock bench --map {function}")}
        return Opened(dataset=dataset, kind=kind, operators=own, side=None)
    return Opened(dataset=dataset, kind=kind, operators=_image_operators(crop, resize), side=crop or resize or 224)


def open_plain(source: str, root: str | None, command: str) -> tuple[Any, str]:
    """Open SOURCE of a command without operators, and say in a few words what it is.

    Raises:
        SourceError: nothing is there, or files of records.
        PlanError: a root for something that is no list file.
    """
    import penstock as ps

    if ("://" in source and not _is_glob(source)) or records_kind(source) is not None:
        raise SourceError(
            f"{source!r} is no list, folder or glob of images and no array file",
            where=f"penstock {command} SOURCE",
            fix="measure it in a program: `for _ in ds.feed(): ...`, with ds = ps.read_tfrecord(...), read_tar, read_parquet or read_files",
        )
    path = Path(source)
    is_list = path.is_file() and path.suffix.lower() not in (".npy", ".npz")
    if root is not None and not is_list:
        raise PlanError(
            f"--root={root!r} is for list files, {source!r} is none", where=f"penstock {command} --root", fix="leave --root out"
        )
    if is_list:
        return ps.read_list(source, root=root), "a list of images"
    if path.is_file():
        return ps.from_arrays(_arrays(path)), "arrays"
    if path.is_dir():
        return ps.read_images(source), "a folder of images"
    if _is_glob(source):
        return ps.read_files(source), "image files"
    raise SourceError(
        f"{source!r} does not exist",
        where=f"penstock {command} SOURCE",
        fix="give a list file of `path label` lines, a folder of images, a quoted glob such as 'images/*.jpg', or a .npy or .npz file",
    )


def _arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a .npy (mapped, not read) or .npz file by name."""
    arrays: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            # NumPy leaves its own file open when a zip archive is broken; this one is closed in any case.
            is_archive = file.read(2) == b"PK"
            file.seek(0)
            if is_archive:
                with np.load(file, allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
        if not is_archive:
            arrays = {"data": np.load(path, mmap_mode="r", allow_pickle=False)}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise SourceError(
            f"{path.name!r} is not an array file that can be read: {error}",
            where=f"array file {path}",
            fix="write it again with numpy.save or numpy.savez; arrays of Python objects are not supported",
        ) from error
    for name, array in arrays.items():
        if array.ndim == 0:
            raise SourceError(
                f"array {name!r} is a single number", where=f"array file {path}", fix="give arrays whose first axis counts the elements"
            )
    return arrays


def _image_operators(crop: int | None, resize: int | None) -> Operators:
    from penstock import image

    steps: Operators
    if resize is None:
        steps = {
            "random_resized_crop": image.random_resized_crop("data", crop or 224, antialias=True),
            "random_flip": image.random_flip("data"),
        }
    else:
        steps = {"resize": image.resize("data", resize, antialias=True), "center_crop": image.center_crop("data", resize)}
    normalize = image.normalize("data", mean=_MEAN, std=_STD, layout="CHW")
    return {"decode": image.decode("data"), **steps, "normalize": normalize}


def imported_function(reference: str, where: str) -> Any:
    """Import a function, as `imported` does.

    Raises:
        PlanError: as `imported`, and where it is something else.
    """
    found = imported(reference, where)
    if not callable(found):
        raise _no_function(reference, where)
    return found


def imported(reference: str, where: str) -> Any:
    """Import "module:name", with the current folder on the path as `python -m` has it.

    Raises:
        PlanError: there is no such module or name, or the module cannot be imported: file and line are in the text.
        PenstockError: what the module itself got from Penstock.
    """
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise PlanError(
            f"{reference!r} does not name a function",
            where=where,
            fix="write it as module:function, such as mycode.augment:train_transform",
        )
    here = os.getcwd()  # not "", which worker processes would take for the folder that this one began in
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except PenstockError:
        raise
    except Exception as error:
        place = place_of(error)
        raise PlanError(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
            where=f"{place}; {where}" if place else where,
            fix="mend that line, or install what it imports" if place else "run from the folder that holds it, or install it",
        ) from error
    if not hasattr(module, name):
        raise _no_function(reference, where)
    return getattr(module, name)


def _no_function(reference: str, where: str) -> PlanError:
    module_name, _, name = reference.partition(":")
    return PlanError(
        f"module {module_name!r} has no function {name!r}", where=where, fix="name a function that takes an element and returns one"
    )
