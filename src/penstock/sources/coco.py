"""Images with the annotations of a COCO file: boxes, classes, masks and key points."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from operator import index as whole
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import RemoteFiles
from penstock._storage.listing import location_of
from penstock._system.text import shown
from penstock.errors import RecordError
from penstock.kernels.library import Ints
from penstock.sources.files import WholeFiles, missing_path
from penstock.sources.paths import join_paths, objects_named, read_located

_PACKED = struct.Struct("<3q5f?")
_ROW = np.dtype([("id", "<i8"), ("image", "<i8"), ("category", "<i8"), ("boxes", "4<f4"), ("areas", "<f4"), ("iscrowd", "?")])
"""An annotation as `_PACKED` writes it."""


class CocoSource(WholeFiles):
    """Serve {"path", "image": bytes, "image_id", "boxes", "labels", "areas", "iscrowd"} of each image that a COCO file names, in its order.

    See `read_coco`. Each field of the annotations is one array, in which those of an image stand side by side.

    Attributes:
        class_names: the names of the classes by label; empty where labels are the numbers of the file.

    Raises:
        RecordError: the file is no COCO file of instances, or an entry is wrong; with its id.
        SourceError, OSError: the folder or the file is not there, or cannot be read.
        PlanError, MissingExtra: as `open_storage`.
    """

    def __init__(
        self,
        images: str | os.PathLike[str] | RemoteFiles,
        annotations: str | os.PathLike[str] | RemoteFiles,
        *,
        masks: bool,
        contiguous_labels: bool,
        skip_empty: bool,
    ) -> None:
        folder, file = location_of(images, "read_coco"), location_of(annotations, "read_coco")
        if not folder.is_url and not os.path.isdir(folder.full):
            raise missing_path(folder.name, "read_coco", "folder")
        self._name, self._has_masks = file.name, masks
        self._file = "" if file.is_url else file.full
        entries = _Entries(self._name, masks)
        classes = entries.parse(read_located(file, "read_coco"))
        rows = np.frombuffer(entries.rows, _ROW)
        image_of = entries.places(rows, "image", (image for image, *_ in entries.images))
        labels = entries.places(rows, "category", classes)
        self.class_names = list(classes.values()) if contiguous_labels else []
        columns = {"labels": labels if contiguous_labels else rows["category"], **entries.columns(rows)}
        order = np.argsort(image_of, kind="stable")
        self._columns = {field: values[order] for field, values in columns.items()}
        shapes = [entries.shapes[row] for row in order.tolist()]
        self._shapes, self._shape_ends = np.concatenate([_NO_SHAPE, *shapes]), np.cumsum([0, *map(len, shapes)])
        starts = np.searchsorted(image_of[order], np.arange(len(entries.images) + 1))
        kept = np.flatnonzero(np.diff(starts) >= skip_empty)
        if not kept.size:
            raise entries.error("there is no image" + " with annotations" * skip_empty, "give another file")
        self._begins, self._ends = starts[kept], starts[kept + 1]
        ids, paths, sizes = zip(*(entries.images[image] for image in kept.tolist()), strict=True)
        self._ids, self._image_sizes = np.array(ids), np.array(sizes)
        table = join_paths(paths, folder.base)
        super().__init__(objects_named(table, folder, "read_coco") if folder.is_url else table, None, "image")

    def _more(self, index: int) -> dict[str, Any]:
        begin, end = int(self._begins[index]), int(self._ends[index])
        more: dict[str, Any] = {"image_id": int(self._ids[index])}
        more |= {field: values[begin:end].copy() for field, values in self._columns.items()}
        if self._has_masks:
            more["masks"] = np.zeros((end - begin, *self._image_sizes[index]), np.uint8)
            for row, mask in enumerate(more["masks"], begin):
                self._draw(self._shapes[self._shape_ends[row] : self._shape_ends[row + 1]].astype(np.int64), mask, index)
        return more

    def _draw(self, parts: Ints, mask: NDArray[np.uint8], index: int) -> None:
        while parts.size:
            is_polygon = parts[0] > 0
            runs, parts = np.split(parts[1:], abs(parts[:1]))
            if is_polygon:
                runs = np.diff(_crossings(runs.reshape(-1, 2), *mask.shape), prepend=0, append=mask.size)
            elif (*runs[:2],) != mask.shape or runs[2:].sum() != mask.size:
                raise RecordError(
                    f"a mask has size {runs[:2].tolist()} and run lengths of {runs[2:].sum()} pixels; the image is {list(mask.shape)}",
                    where=self.describe(index),
                    fix="correct the annotation, or the height and width of the image",
                )
            else:
                runs = runs[2:]
            mask |= np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(mask.T.shape).T

    def describe(self, index: int) -> str:
        """Name the image, its file and the file of annotations."""
        return f"image {self._ids[index]} of {shown(self._name)} ({shown(self._table.path(index))})"

    def input_files(self) -> Iterator[str]:
        """Give the full path of each image of this machine, and that of the annotations."""
        yield from super().input_files()
        if self._file:
            yield self._file

    def fingerprint(self) -> dict[str, Any]:
        """Return count, check sums of paths and annotations, and sizes and a check sum of both ends of up to 64 images."""
        crc = 0
        for values in (self._ids, self._ends, self._shapes, *self._columns.values()):
            crc = zlib.crc32(values.data, crc)
        return {**self._table.fingerprint("coco"), "annotations_crc32": crc}

    def label(self) -> str:
        """Return the call with the numbers of images, of annotations, and of boxes without width or height."""
        boxes = self._columns["boxes"]
        num_flat = int((boxes[:, :2] == boxes[:, 2:]).any(1).sum())
        flat = f", {num_flat} without width or height" if num_flat else ""
        return f"read_coco({shown(self._name)}, {len(self)} elements, {len(boxes)} annotations{flat})"


# -- the JSON of annotations ------------------------------------------------------------------------------------------------------


class _WrongEntry(Exception):
    """An entry is wrong; the text says how."""


_LISTS = {"images": "image", "annotations": "annotation", "categories": "category"}
"""What an entry of a list is."""
_MARK = re.compile(r"[ \t\r\n]*([][{}:,]|$)[ \t\r\n]*")
"""A mark of JSON between two values, or the end."""


def _entries_of(text: str) -> Iterator[tuple[str, Any]]:
    """Give what each entry of the lists of a COCO file is, and the entry, one after the other: all together they are large.

    Raises:
        JSONDecodeError: it is no such object.
    """
    decode, at = json.JSONDecoder().raw_decode, 0

    def step(among: str) -> str:
        nonlocal at
        mark = _MARK.match(text, at)
        if not mark or mark[1] not in among:
            raise json.JSONDecodeError(f"Expecting one of {among!r}", text, at)
        at = mark.end()
        return mark[1]

    end = step("{")
    while end != "}":
        name, at = decode(text, at)
        step(":")
        if name in _LISTS:
            end = step("[")
            if text.startswith("]", at):
                end = step("]")
            while end != "]":
                entry, at = decode(text, at)
                yield _LISTS[name], entry
                end = step(",]")
        else:
            at = decode(text, at)[1]
        end = step(",}")
    step("")


class _Entries:
    """What is in a COCO file, taken entry by entry while it is parsed: its dicts are never in memory together."""

    def __init__(self, name: str, masks: bool) -> None:
        self._name, self._masks, self._num_values = name, masks, 0
        self._seen, self._classes = set[tuple[str, int]](), dict[int, str]()
        self.images: list[tuple[int, bytes, tuple[int, ...]]] = []
        self.rows, self._points, self.shapes = bytearray(), list[Any](), list[NDArray[np.intc]]()

    def error(self, what: str, fix: str = "correct the entry, or take it out") -> RecordError:
        return RecordError(what, where=f"read_coco, {shown(self._name)}", fix=fix)

    def parse(self, data: bytes) -> dict[int, str]:
        """Take all entries, and return the names of the categories by id, in the order of the ids."""
        try:
            for kind, entry in _entries_of(data.decode(json.detect_encoding(data))):
                self._take(kind, entry)
        except RecordError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            fix = 'give a JSON file with lists "images", "annotations" and "categories"'
            raise self.error(f"this is no COCO file of instances: {error!r:.200}", fix) from error
        return dict(sorted(self._classes.items()))

    def _take(self, kind: str, entry: Any) -> None:
        id_: Any = None
        try:
            id_ = entry["id"]
            key = kind, whole(id_)
            if key in self._seen:
                raise _WrongEntry("another one has this id")
            self._seen.add(key)
            getattr(self, f"_{kind}")(entry)
        except (LookupError, TypeError, ValueError, OverflowError, struct.error, _WrongEntry) as error:
            wrong = f"no {error}" if isinstance(error, LookupError) else str(error)
            raise self.error(f"{kind} {id_!r:.40}: {wrong:.200}") from error

    def _category(self, entry: dict[str, Any]) -> None:
        self._classes[entry["id"]] = str(entry["name"])

    def _image(self, entry: dict[str, Any]) -> None:
        path = os.fsencode(entry["file_name"])
        if not path or b"\0" in path:
            raise _WrongEntry("file_name is empty, or has a NUL byte")
        size = (whole(entry["height"]), whole(entry["width"])) if self._masks else ()
        if min(size, default=1) < 1:
            raise _WrongEntry(f"height and width are {list(size)}, and should be 1 or more")
        self.images.append((entry["id"], path, size))

    def _annotation(self, entry: dict[str, Any]) -> None:
        left, top, width, height = array("d", entry["bbox"])
        area, is_crowd = entry.get("area", width * height), entry.get("iscrowd", 0)
        if not (width >= 0 <= height and math.isfinite(left + top + width + height + area)):
            raise _WrongEntry(f"bbox {entry['bbox']} has a negative size, or bbox or area {area} has a value that is no number")
        if is_crowd not in (0, 1):
            raise _WrongEntry(f"iscrowd is {is_crowd!r}, and should be 0 or 1")
        ids, box = (entry["id"], entry["image_id"], entry["category_id"]), (left, top, left + width, top + height)
        self.rows += _PACKED.pack(*ids, *box, area, is_crowd)
        points = array("f", entry.get("keypoints") or ())
        self._num_values = self._num_values or len(points)
        if points and (len(points) != self._num_values or len(points) % 3 or not np.isfinite(points).all()):
            raise _WrongEntry(f"{len(points)} values of key points; all should have as many as the first, three numbers a point")
        self._points.append(points or None)
        self.shapes.append(_shape(entry["segmentation"]) if self._masks else _NO_SHAPE)

    def columns(self, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the fields that are as they are in the file."""
        columns: dict[str, NDArray[Any]] = {field: rows[field] for field in ("boxes", "areas", "iscrowd")}
        size = self._num_values
        if size:
            columns["points"] = np.array([given or [0] * size for given in self._points], np.float32).reshape(-1, size // 3, 3)
        return columns

    def places(self, rows: NDArray[Any], field: str, known: Iterable[int]) -> Ints:
        """Return the places of the ids of a field among those `known`."""
        place_of = {one: place for place, one in enumerate(known)}
        places = np.array([place_of.get(one, -1) for one in rows[field].tolist()], np.int64)
        wrong = rows[places < 0]
        if wrong.size:
            raise self.error(f"annotation {wrong['id'][0]}: {field} {wrong[field][0]} is not in the file; {wrong.size} such annotations")
        return places


# -- masks ------------------------------------------------------------------------------------------------------------------------

_NO_SHAPE = np.empty(0, np.intc)
_SCALE = 5  # polygons are drawn on a grid that is so many times finer
_MOST = 100_000  # pixels from the corner of the image to a point of a polygon


def _shape(given: Any) -> NDArray[np.intc]:
    """Return the polygons, on the fine grid, or size and run lengths of a mask, each behind their number; that of a mask is negative."""
    if not given:
        raise _WrongEntry("segmentation is empty")
    if isinstance(given, dict):
        (height, width), counts = map(whole, given["size"]), _counts(given["counts"])
        return np.append([-2 - len(counts), height, width], counts).astype(np.intc)
    parts = [np.array(part, np.float64) for part in given]
    if not all(part.ndim == 1 and len(part) >= 6 and not len(part) % 2 and (abs(part) <= _MOST).all() for part in parts):
        raise _WrongEntry(f"a polygon of segmentation has fewer than three points, half a point, or one beyond {_MOST} pixels")
    return np.concatenate([np.append(len(part), _SCALE * part + 0.5) for part in parts]).astype(np.intc)


def _counts(given: Any) -> Ints:
    """Return the lengths of runs of zeros and ones in turn, down the columns, of a list or of text.

    A character of the text has five bits, the lowest first, and a sixth one where more follow; the highest bit of the last one is the sign.
    From the fourth on, a number is the difference to the one before the last.
    """
    counts, value, shift = list[int](), 0, 0
    for digit in given.encode() if isinstance(given, str) else ():
        value |= (digit - 48 & 31) << shift
        shift += 5
        if digit < 80:
            value -= (digit - 48 & 16) << shift - 4
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    lengths = np.array(counts or given, np.int64)
    if lengths.ndim != 1 or (lengths < 0).any() or (lengths >= 1 << 31).any():
        raise _WrongEntry("the run lengths of segmentation are not all in 0..2147483647")
    return lengths


def _crossings(corners: Ints, height: int, width: int) -> Ints:
    """Return the pixels, counted down the columns, at which the inside of a polygon begins or ends.

    The outline is drawn on the fine grid, a point for each step along the longer side of an edge. Where it goes through the middle of a
    column of pixels, the first pixel with its middle below the outline is one.
    """
    edges = np.stack((corners, np.roll(corners, -1, 0)), 1)
    sides = abs(edges[:, 1] - edges[:, 0])
    steep = sides[:, 1] > sides[:, 0]
    edges[steep] = edges[steep][..., ::-1]
    backward = edges[:, 0, 0] > edges[:, 1, 0]
    edges[backward] = edges[backward, ::-1]
    lengths, rises = (edges[:, 1] - edges[:, 0]).T
    edge = np.repeat(np.arange(len(edges)), lengths + 1)
    along = np.arange(len(edge)) - np.searchsorted(edge, edge)
    across = edges[edge, 0, 1] + (rises / np.maximum(lengths, 1))[edge] * along + 0.5
    points = np.stack((edges[edge, 0, 0] + along, across.astype(np.int64)))
    x, y = np.where(steep[edge], points[::-1], points)
    crossed = (x[1:] != x[:-1]) & (edge[1:] == edge[:-1])
    column, step = np.divmod(np.minimum(x[1:], x[:-1]), _SCALE)
    crossed &= (step == _SCALE // 2) & (column >= 0) & (column < width)
    row = np.clip((np.minimum(y[1:], y[:-1]) + _SCALE // 2) // _SCALE, 0, height)
    return np.sort((column * height + row)[crossed])
