"""Encoded bytes to pixels; the steps of an image on its way to a batch as one: decode, crop or resize, mirror, normalise.

Decoding half a megabyte of pixels empties the caches, so that the Python between four operators costs three times what it costs in a tight
loop: about 90 us of the 1,200 us that a photograph takes. One function with the checks done once needs less than half.

The rows of a sequential JPEG stand in the file from top to bottom, so that a crop needs nothing of what lies below it. (It does need what
lies above: each block is coded as its difference to the one before.) The decoder is given a copy of the file whose header says
fewer rows (ITU-T T.81, B.2.2: Y, the number of lines): it stops there, looks for the end of the image, and then complains of the bytes
between. A random crop as in ImageNet's recipe needs 0.87 of the rows of a 500x375 photograph on average. The pixels are those of the whole
image, bit for bit: two rows more than asked are decoded, because the smooth upsampling of colour looks at the next row of it.
"""

from __future__ import annotations

import dataclasses
import io
import re
import struct
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from penstock import kernels
from penstock._contracts.arguments import is_whole
from penstock._contracts.transform import FusedTransform, Scratch, Transform
from penstock._system.lazy import dataclass
from penstock.errors import DecodeError, MissingExtra, PlanError, SpecError
from penstock.image import jpeg
from penstock.image.fields import Encoded, two_forms
from penstock.image.flipping import RandomFlip
from penstock.image.geometry import resized
from penstock.image.header import Data, Header, damaged, is_tiff, orient, read_header, tiff_orientation, verify_png
from penstock.image.normalizing import Normalize
from penstock.image.operator import (
    BEFORE_BATCH,
    ImageOperator,
    as_flag,
    by_opencv,
    hand_over,
    imdecode,
    load_cv2,
    load_simplejpeg,
    names,
    place,
)
from penstock.image.resizing import Box, RandomResizedCrop, Resize
from penstock.kernels.library import FLOAT32_DTYPE, UINT8_DTYPE, Array, Uint8s

_WITHOUT_SIMPLEJPEG = (
    'simplejpeg is not installed: OpenCV decodes each JPEG twice, to find missing pixels. pip install "penstock[image]" makes it faster'
)
_SMALL_BYTES = 1_100_000  # seven images of 224 x 224: they stay in the second-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedImage:
    """Decode, then crop or resize to one size, then perhaps mirror, then perhaps normalise, all on one field. The same bytes as one by one.

    Attributes:
        parts: the operators, in order; anything out of the ordinary (no three-channel JPEG, another orientation) goes through them.
    """

    parts: tuple[Transform, ...]
    decode: Decode
    crop: RandomResizedCrop | Resize
    flip: RandomFlip | None
    normalize: Normalize | None
    field: str
    out_field: str
    num_draws: int

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: Array | None) -> Array:
        """Do all steps on one image.

        Raises:
            SpecError, DecodeError: as the operators.
        """
        writer = self.writer()
        made = writer.apply(value, draws, scratch or Scratch(), out)
        writer.finish()
        return made if scratch is not None or made is out or made.base is None else made.copy()

    def writer(self) -> FusedWriter:
        """Return what does a block of images."""
        return FusedWriter(self)

    def resized(self, value: Any, header: Header, box: Box, scratch: Scratch, target: Uint8s | None) -> Uint8s:
        """Return the part `box` of a usual image in its new size: in `target`, or as a view in scratch where that is None."""
        top, left, rows, columns, size = box
        view = self.decode.upper_rows(value, header, top + rows, scratch)[top : top + rows, left : left + columns]
        if (rows, columns) != size:
            target = scratch.take("fused small", (*size, 3), UINT8_DTYPE) if target is None else target
            return resized(view, target, self.crop.interpolation, self.crop.antialias)
        if target is None:
            return view
        np.copyto(target, view)
        return target

    def one_by_one(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: Array | None) -> Array:
        """Do the steps one after the other."""
        used = 0
        for part in self.parts:
            last = part is self.parts[-1]
            value = part.apply(value, draws[used : used + part.num_draws], scratch, out if last else None)
            used += part.num_draws
        return value  # type: ignore[no-any-return]


class FusedWriter:
    """Does the images of a block; what is left to do on small ones, to mirror and normalise, it does for several with one call."""

    def __init__(self, of: FusedImage) -> None:
        self._of = of
        self._first = of.normalize is not None and of.normalize.layout == "CHW"
        self._smalls = np.empty((0, 0, 0, 3), np.uint8)
        self._flips: list[bool] = []
        self._outs: list[Array] = []

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch, out: Array | None) -> Array:
        """Do all steps on one image, but for what `finish` does.

        Raises:
            SpecError, DecodeError: as the operators.
        """
        of = self._of
        normalize, header = of.normalize, of.decode.usual(value)
        if header is None or (normalize is not None and len(normalize.mean) != 3):  # which says what is wrong
            return of.one_by_one(value, draws, scratch, out)
        box = of.crop.box(header.height, header.width, draws)
        height, width = box[4]
        flipped = of.flip is not None and draws[of.crop.num_draws] < of.flip.probability
        shape = (3, height, width) if self._first else (height, width, 3)
        dtype = UINT8_DTYPE if normalize is None else FLOAT32_DTYPE
        if out is not None and (out.shape != shape or out.dtype != dtype):
            self.finish()  # the image by itself takes the place of one that is not written yet
            return of.apply(value, draws, scratch, None).copy()
        if normalize is None and not flipped:
            return of.resized(value, header, box, scratch, out)
        if self._smalls.shape[1:3] != box[4]:
            self.finish()
            self._smalls = scratch.take("fused smalls", (max(1, _SMALL_BYTES // (3 * height * width)), height, width, 3), UINT8_DTYPE)
        of.resized(value, header, box, scratch, self._smalls[len(self._outs)])
        target = scratch.take("fused", shape, dtype) if out is None else out
        self._outs.append(target)
        self._flips.append(flipped)
        if len(self._outs) == len(self._smalls):
            self.finish()
        return target

    def finish(self) -> None:
        """Write what is left."""
        if self._outs:
            how, smalls = self._of.normalize, self._smalls[: len(self._outs)]
            scale, bias = (None, None) if how is None else (how.scale, how.bias)
            kernels.write_images(smalls, np.array(self._flips), scale, bias, self._first, self._outs)
            self._outs, self._flips = [], []


def fused(steps: Sequence[Transform]) -> FusedImage | None:
    """Return the longest prefix of `steps` that can be one, or None."""
    if len(steps) < 2 or not isinstance(steps[0], Decode) or not isinstance(steps[1], (RandomResizedCrop, Resize)):
        return None
    decode, crop, rest = steps[0], steps[1], list(steps[1:4])
    parts: list[Transform] = [decode]
    for kind in ((RandomResizedCrop, Resize), RandomFlip, Normalize):
        if not rest or not isinstance(rest[0], kind):
            continue
        if rest[0].field != parts[-1].out_field or rest[0].out_field != rest[0].field:
            break
        parts.append(rest.pop(0))
    if len(parts) < 2 or decode.mode != "RGB":
        return None
    return FusedImage(
        parts=tuple(parts),
        decode=decode,
        crop=crop,
        flip=next((part for part in parts if isinstance(part, RandomFlip)), None),
        normalize=next((part for part in parts if isinstance(part, Normalize)), None),
        field=decode.field,
        out_field=parts[-1].out_field,
        num_draws=sum(part.num_draws for part in parts),
    )


Mode = Literal["RGB", "GRAY", "unchanged"]
_MAX_PIXELS = 89_478_485  # 256 MiB of RGB, the number that Pillow warns at


class _Count:
    """How many odd files an operator has read in this process. A copy starts at 0, and counting does not change what the operator is."""

    num = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _Count, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(ImageOperator):
    """Decode an image file to (height, width, channels): uint8, 3 channels, 1 for "GRAY", or what is stored. Made by `decode`."""

    name: ClassVar[str] = "decode"

    mode: Mode
    max_pixels: int
    crop_only: bool
    exif: bool = True
    odd: _Count = dataclasses.field(default_factory=_Count, init=False, repr=False, compare=False)
    reduced: _Count = dataclasses.field(default_factory=_Count, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return the call; `exif` is left out where it is True, as the states of earlier releases have it."""
        names = "field", "out_field", "mode", "max_pixels", "crop_only", *([] if self.exif else ["exif"])
        return f"Decode({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def made_by(self) -> str:
        """The libraries that decode, for what is kept of their pixels: another version may give others."""
        modules = (load_cv2(),) if by_opencv() else (load_simplejpeg(), load_cv2())
        return ", ".join(f"{module.__name__} {module.__version__}" for module in modules)

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: Array | None) -> Array:
        """Decode one image; a JPEG that needs no turning goes straight into `out` or scratch.

        Raises:
            SpecError: `value` is not bytes.
            DecodeError: the bytes are not an image that can be read in full, or it has too many pixels.
        """
        data = value if type(value) is bytes else self._as_bytes(value)
        if self.mode == "unchanged" and is_tiff(data):
            stored = _tiff_pixels(data, self.max_pixels, self.place_name())
            return hand_over(orient(stored, tiff_orientation(data) if self.exif else 1), scratch, out)
        header = self._header(data)
        if header.height * header.width > self.max_pixels:
            raise DecodeError(
                f"{header.kind} image of {header.width} x {header.height} = {header.width * header.height} pixels"
                f" is over the limit of {self.max_pixels}",
                where=f"{self.place_name()}, {len(data)} bytes",
                fix="leave the file out of the list, or raise max_pixels= if you trust it",
            )
        if header.kind == "JPEG":
            return self._jpeg(data, header, scratch, out)
        orientation = verify_png(data, header, self.place_name()) if header.kind == "PNG" else header.orientation
        if not self.exif:  # OpenCV has turned a TIFF image
            turned = tiff_orientation(data) if header.kind == "TIFF" else 1
            orientation = {6: 8, 8: 6}.get(turned, turned)  # that undoes it
        pixels = _stored_pixels(data, header, self.place_name()) if self.mode == "unchanged" else self._other(data, header)
        return hand_over(orient(pixels, orientation), scratch, out)

    def fuse(self, following: Sequence[Transform]) -> FusedTransform | None:
        """Return this operator with as many of the following ones as can be done in one, or None."""
        return fused([self, *following])

    def notice(self, seed: int, following: Sequence[tuple[Any, int]], right_behind: Any) -> str:
        """Say that `crop_only` does nothing here, where that is so."""
        crop = fused([self, right_behind]) if self.crop_only and right_behind is not None else None
        if not self.crop_only or (crop is not None and isinstance(crop.crop, RandomResizedCrop)):
            return ""
        return (
            f"crop_only=True of {self.place_name()} does nothing: it leaves out rows only where "
            f"random_resized_crop({self.out_field!r}, ...) "
            'without out= or fields= comes next and mode is "RGB"; put that right behind it, or leave crop_only away'
        )

    def usual(self, value: Any) -> Header | None:
        """Return the header of the usual image, an upright three-channel JPEG; None for every other, which `apply` looks at.

        Raises:
            DecodeError: the header is damaged, or it is no image.
        """
        if type(value) is not bytes and type(value) is not memoryview:
            return None
        header = self._header(value)
        usual = header.kind == "JPEG" and header.orientation == 1 and header.channels != 4
        return header if usual and header.height * header.width <= self.max_pixels else None

    def _header(self, data: Data) -> Header:
        header = read_header(data, self.place_name())
        return header if self.exif else header._replace(orientation=1)

    def upper_rows(self, value: bytes | memoryview, header: Header, num_rows: int, scratch: Scratch) -> Uint8s:
        """Decode the first `num_rows` rows or more of a usual image, whose header this is, into scratch.

        Raises:
            DecodeError: the bytes of these rows are damaged, or the image has no end.
        """
        rows = upper_rows(value, header, num_rows, scratch, self.tag) if self.crop_only and not by_opencv() else None
        return self._jpeg(value, header, scratch, None) if rows is None else rows

    def _jpeg(self, data: bytes | memoryview, header: Header, scratch: Scratch | None, out: Array | None) -> Array:
        mode = self._jpeg_mode(header)
        num_channels = 4 if header.channels == 4 else 3 if mode == "RGB" else 1
        direct = header.orientation == 1 and num_channels != 4
        buffer = place(self.tag, (header.height, header.width, num_channels), UINT8_DTYPE, None, scratch, out if direct else None)
        space = "CMYK" if num_channels == 4 else mode
        pixels = jpeg.take(data, buffer, space, None, self.place_name()) if by_opencv() else buffer
        try:
            # strict: libjpeg only warns when data end early, and would return an image that is grey from there on
            if pixels is buffer:
                load_simplejpeg().decode_jpeg(data, space, buffer=buffer, strict=True)
        except ValueError as error:
            pixels = self._jpeg_again(data, space, buffer, error)
        if direct and pixels is buffer:
            return buffer
        if pixels.shape[2] == 4:
            pixels = _cmyk_to_rgb(pixels)
        if pixels.shape[2] == 3 and mode == "GRAY":
            pixels = _luma(pixels)
        return hand_over(orient(pixels, header.orientation), scratch, out)

    def _jpeg_mode(self, header: Header) -> str:
        return ("GRAY" if header.channels == 1 else "RGB") if self.mode == "unchanged" else self.mode

    def _jpeg_again(self, data: bytes | memoryview, space: str, buffer: Uint8s, error: ValueError) -> Uint8s:
        pixels = jpeg.take(data, buffer, space, error, self.place_name())
        if pixels is buffer:
            num = self.odd.num = self.odd.num + 1  # without a lock: two threads may count the same, and none leaves a number out
            if num == 10 ** (len(str(num)) - 1):
                text = f"{self.place_name()} read every pixel of {num} JPEG that libjpeg warns of, at last: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        return pixels

    def _other(self, data: bytes | memoryview, header: Header) -> Array:
        if header.kind == "PNG":
            self._tell_what_is_lost(data)
        cv2, stored = load_cv2(), header.kind not in ("PNG", "WebP")
        if header.kind == "GIF":
            data = _OPAQUE.sub(lambda found: found[0][:3] + bytes([found[0][3] & 0xFE]), data, 1)
        pixels = imdecode(data, cv2.IMREAD_UNCHANGED if stored else cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        if stored and pixels is not None:
            if pixels.dtype == np.uint16:
                pixels = (pixels >> 8).astype(np.uint8)
            pixels = pixels[..., None].repeat(3, 2) if pixels.ndim == 2 else pixels[..., 2::-1]
        if pixels is None or pixels.shape != (header.height, header.width, 3):
            raise damaged(header.kind, "the decoder rejects its pixel data", data, self.place_name())
        return pixels if self.mode == "RGB" else _luma(pixels)

    def _tell_what_is_lost(self, png: bytes | memoryview) -> None:
        if self.reduced.num or not (png[24] == 16 or png[25] == _PALETTE):
            return
        self.reduced.num = 1
        made = "8 bits of a 16-bit PNG" if png[24] == 16 else "colours of the numbers of a palette PNG"
        text = f'{self.place_name()} makes {made}: mode="unchanged" gives what is stored, such as depths and the numbers of classes'
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _as_bytes(self, value: Any) -> bytes | memoryview:
        if isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return memoryview(value).cast("B")
        if isinstance(value, np.ndarray) and value.dtype == UINT8_DTYPE and value.ndim == 1:
            return np.ascontiguousarray(value).data
        got = f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        is_batch = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object)
        fix = "give the file's content, not its path" if isinstance(value, str) else "an array of pixels needs no decode: leave it out"
        raise SpecError(
            f"field {self.field!r} is {got}, expected the bytes of an encoded image (bytes or a 1-D uint8 array)",
            where=self.place_name(),
            fix=BEFORE_BATCH if is_batch else fix,
        )


@two_forms
def decode(
    field: str | Encoded,
    *,
    mode: Mode = "RGB",
    max_pixels: int = _MAX_PIXELS,
    crop_only: bool = False,
    exif: bool = True,
    out: str | None = None,
) -> Decode:
    """Decode JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000, told apart by content, to pixels (height, width, channels).

    The orientation of EXIF or XMP is applied. Without "unchanged" alpha is dropped and 16 bits become 8 by `>> 8`; docs/image.md has all
    conversions.

    Args:
        field: the field with the encoded bytes, or the bytes themselves (the pixels are then returned at once).
        mode: "RGB" for uint8 of 3 channels, "GRAY" for 1. "unchanged" gives what the file stores: 16 bits as uint16, alpha as a channel,
            the numbers of a palette PNG, which are the classes of a mask, and of TIFF any dtype, pages and bands as channels.
        max_pixels: height x width above which the image is refused, read from the header before anything is decoded.
        crop_only: leave out the rows below the crop where `random_resized_crop` comes next: a tenth faster, the same pixels.
            Of damaged JPEG files only those that end early are then still found as surely as before.
        exif: False leaves the pixels as the file stores them, whatever the orientation, for boxes and masks that were drawn on those.
        out: the field for the pixels; the default is `field`.

    Raises:
        PlanError: unknown mode, a limit that is not a positive number, or a `crop_only` or `exif` that is neither True nor False.
        MissingExtra: OpenCV is not installed, or tifffile is not, which "unchanged" reads TIFF with. Without simplejpeg OpenCV decodes
            JPEG too, more slowly, with a `RuntimeWarning`.
        DecodeError: (on bytes) not an image that can be read in full.
        SpecError: (on a value) neither a field name nor bytes.
    """
    if mode not in get_args(Mode):
        raise PlanError(f"mode={mode!r} is not known", where="image.decode", fix='give "RGB", "GRAY" or "unchanged"')
    if not is_whole(max_pixels, 1):
        raise PlanError(f"max_pixels={max_pixels!r} is not a number of pixels", where="image.decode", fix="give a positive whole number")
    crop_only, exif = as_flag(crop_only, "crop_only", "decode"), as_flag(exif, "exif", "decode")
    if by_opencv():
        warnings.warn(_WITHOUT_SIMPLEJPEG, RuntimeWarning, stacklevel=3)
    return Decode(**names(field, out), mode=mode, max_pixels=max_pixels, crop_only=crop_only, exif=exif)


def _cmyk_to_rgb(cmyk: Uint8s) -> Uint8s:
    """Convert as Adobe writes it, which is inverted (255 = no ink): red = cyan * black / 255, and so on."""
    product = cmyk[..., :3].astype(np.uint16)
    product *= cmyk[..., 3:]
    product += 127
    product //= 255
    return product.astype(np.uint8)


_OPAQUE = re.compile(rb"!\xf9\x04.", re.DOTALL)
"""What says, before a picture of a GIF, whether one of its colours is transparent, in the lowest bit: OpenCV gives another for it."""


def _luma(rgb: Uint8s) -> Uint8s:
    cv2 = load_cv2()
    gray: Uint8s = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    return gray.reshape(*gray.shape[:2], 1)


_MARGIN = 2
_WORTH_IT = 16  # rows that are left out; fewer are not worth the copy of the file, about 5 us
# libjpeg's words for bytes and then the end of the image, or a restart marker on the way there. It says only its first complaint
_LEFT_OVER = re.compile(r"extraneous bytes before marker 0xd[0-79]$")


def upper_rows(data: bytes | memoryview, header: Header, num_rows: int, scratch: Scratch, tag: str) -> Uint8s | None:
    """Return the first rows of a JPEG, RGB, at least `num_rows` of them, in scratch; None where the whole image has to be decoded.

    That is also so when the decoder complains of anything but the bytes left over: the whole image then shows what is wrong with it.
    """
    wanted = num_rows + _MARGIN
    if not header.height_at or wanted > header.height - _WORTH_IT:
        return None
    copy = scratch.take(f"{tag} upper part", (len(data),), np.uint8).data
    copy[:] = data
    copy[header.height_at], copy[header.height_at + 1] = divmod(wanted, 256)
    pixels: Uint8s = scratch.take(tag, (wanted, header.width, 3), np.uint8)
    try:
        load_simplejpeg().decode_jpeg(copy, "RGB", buffer=pixels, strict=True)
    except ValueError as error:
        if not _LEFT_OVER.search(str(error)):
            return None
    return pixels


# -- what is stored ---------------------------------------------------------------------------------------------------------------

_KEPT = (b"IHDR", b"IDAT", b"IEND")
_PALETTE = 3
_CHANNELS = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}
"""For so many channels of OpenCV, where those of the file are."""


def _stored_pixels(data: Data, header: Header, where: str) -> Array:
    """Return the pixels of a PNG, WebP, BMP, GIF, AVIF or JPEG 2000 image as they are stored: (height, width, channels), not turned.

    A palette PNG gives the numbers of its colours. Grey PNG of 1, 2 and 4 bits gives numbers below 2, 4 and 16.

    Raises:
        DecodeError: the pixel data are damaged.
    """
    is_png = header.kind == "PNG"
    pixels = imdecode(_as_grey(data) if is_png else data, load_cv2().IMREAD_UNCHANGED)
    if pixels is None or pixels.shape[:2] != (header.height, header.width):
        raise damaged(header.kind, "the decoder rejects its pixel data", data, where)
    pixels = pixels.reshape(header.height, header.width, -1)
    order = _CHANNELS[pixels.shape[2]]
    if is_png and data[25] == 4:
        order = [0, 3]  # grey with alpha, which OpenCV gives as colours
    pixels = pixels[..., order]
    if is_png and data[24] < 8:
        pixels //= 255 // (2 ** data[24] - 1)
    found: Array = pixels
    return found


def _as_grey(data: Data) -> bytes:
    """Return a PNG with nothing but its pixels; those of a palette are its grey values: the bits are laid out alike."""
    view, at, parts = memoryview(data), 8, [bytes(data[:8])]
    while at < len(view):
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        chunk = bytearray(view[at:end])
        if bytes(chunk[4:8]) == b"IHDR" and chunk[17] == _PALETTE:
            chunk[17] = 0
            chunk[-4:] = zlib.crc32(chunk[4:-4]).to_bytes(4, "big")
        if bytes(chunk[4:8]) in _KEPT:
            parts.append(bytes(chunk))
        at = end
    return b"".join(parts)


def _tiff_pixels(data: Data, max_pixels: int, where: str) -> Array:
    """Return the first series of a TIFF image by tifffile, not turned: (height, width, pages and channels).

    Raises:
        MissingExtra: tifffile is not installed.
        DecodeError: it cannot be read, is no image of rows and columns, or has more pixels in a plane than `max_pixels`.
    """
    try:
        import tifffile
    except ImportError as error:
        raise MissingExtra(
            f"tifffile, which reads TIFF unchanged, cannot be imported: {error}", where=where, fix='pip install "penstock[tiff]"'
        ) from error
    try:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            series = file.series[0]
            sizes = dict(zip(series.axes, series.shape, strict=True))
            if "Y" in sizes and "X" in sizes and sizes["Y"] * sizes["X"] <= max_pixels:
                moved: Array = np.moveaxis(series.asarray(), (series.axes.index("Y"), series.axes.index("X")), (0, 1))
                return moved.reshape(*moved.shape[:2], -1)
    except (tifffile.TiffFileError, ValueError, IndexError, KeyError, RuntimeError, struct.error, zlib.error) as error:
        raise damaged("TIFF", f"tifffile says: {error}", data, where) from error
    raise DecodeError(
        f"TIFF image of axes {series.axes} and shape {list(series.shape)}, with a limit of {max_pixels} pixels",
        where=f"{where}, {len(data)} bytes",
        fix="leave the file out of the list, or raise max_pixels= if you trust it",
    )
