"""Encoded bytes to pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import FusedTransform, Scratch, Transform
from penstock.errors import DecodeError, PlanError, SpecError
from penstock.image.fused import fused
from penstock.image.header import Header, damaged, orient, read_header, verify_png
from penstock.image.jpeg import upper_rows
from penstock.image.operator import BEFORE_BATCH, Operator, hand_over, is_whole, load_cv2, load_simplejpeg, names, place, run_now
from penstock.image.resizing import RandomResizedCrop

__all__ = ["Decode", "decode"]

Mode = Literal["RGB", "GRAY"]
Encoded = bytes | bytearray | memoryview | NDArray[np.uint8]

_UINT8, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)
_MAX_PIXELS = 89_478_485  # 256 MiB of RGB, the number that Pillow warns at


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(Operator):
    """Decode JPEG, PNG or WebP to uint8 (height, width, 3) or, for mode "GRAY", (height, width, 1). Made by `decode`."""

    name: ClassVar[str] = "decode"

    mode: Mode
    max_pixels: int
    crop_only: bool

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        """Decode one image; a JPEG that needs no turning goes straight into `out` or scratch.

        Raises:
            SpecError: `value` is not bytes.
            DecodeError: the bytes are not an image that can be read in full, or it has too many pixels.
        """
        data = value if type(value) is bytes else self._as_bytes(value)
        header = read_header(data, self.place_name())
        if header.height * header.width > self.max_pixels:
            raise DecodeError(
                f"{header.kind} image of {header.width} x {header.height} = {header.width * header.height} pixels"
                f" is over the limit of {self.max_pixels}",
                where=f"{self.place_name()}, {len(data)} bytes",
                fix="leave the file out of the list, or raise max_pixels= if you trust it",
            )
        if header.kind == "JPEG":
            return self._jpeg(data, header, scratch, out)
        return self._other(data, header, scratch, out)

    def fuse(self, following: Sequence[Transform]) -> FusedTransform | None:
        """Return this operator with as many of the following ones as can be done in one, or None."""
        return fused([self, *following])

    def notice(self, seed: int, following: Sequence[tuple[Transform, int]], right_behind: Transform | None) -> str:
        """Say that `crop_only` does nothing here, where that is so."""
        crop = fused([self, right_behind]) if self.crop_only and right_behind is not None else None
        if not self.crop_only or (crop is not None and isinstance(crop.crop, RandomResizedCrop)):
            return ""
        return (
            f"crop_only=True of {self.place_name()} does nothing: it leaves out rows only where "
            f"random_resized_crop({self.out_field!r}, ...) "
            'without out= comes next and mode is "RGB"; put that right behind it, or leave crop_only away'
        )

    def usual(self, value: Any) -> Header | None:
        """Return the header of the usual image, an upright three-channel JPEG; None for every other, which `apply` looks at.

        Raises:
            DecodeError: the header is damaged, or it is no image.
        """
        if type(value) is not bytes and type(value) is not memoryview:
            return None
        header = read_header(value, self.place_name())
        usual = header.kind == "JPEG" and header.orientation == 1 and header.channels != 4
        return header if usual and header.height * header.width <= self.max_pixels else None

    def upper_rows(self, value: bytes | memoryview, header: Header, num_rows: int, scratch: Scratch) -> NDArray[np.uint8]:
        """Decode the first `num_rows` rows or more of a usual image, whose header this is, into scratch.

        Raises:
            DecodeError: the bytes of these rows are damaged, or the image has no end.
        """
        rows = upper_rows(value, header, num_rows, scratch, self.tag) if self.crop_only else None
        return self._jpeg(value, header, scratch, None) if rows is None else rows

    def _jpeg(self, data: bytes | memoryview, header: Header, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        num_channels = 4 if header.channels == 4 else 3 if self.mode == "RGB" else 1
        direct = header.orientation == 1 and num_channels != 4
        buffer = place(self.tag, (header.height, header.width, num_channels), _UINT8, None, scratch, out if direct else None)
        space = "CMYK" if num_channels == 4 else self.mode
        try:
            # strict: libjpeg only warns when data end early, and would return an image that is grey from there on
            load_simplejpeg().decode_jpeg(data, space, buffer=buffer, strict=True)
        except ValueError as error:
            raise damaged("JPEG", str(error), data, self.place_name()) from error
        if direct:
            return buffer
        pixels = _cmyk_to_rgb(buffer) if num_channels == 4 else buffer
        if num_channels == 4 and self.mode == "GRAY":
            pixels = _luma(pixels)
        return hand_over(orient(pixels, header.orientation), scratch, out)

    def _other(self, data: bytes | memoryview, header: Header, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        orientation = verify_png(data, header, self.place_name()) if header.kind == "PNG" else header.orientation
        cv2 = load_cv2()
        try:
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        except cv2.error as error:
            raise damaged(header.kind, str(error), data, self.place_name()) from error
        if pixels is None or pixels.shape != (header.height, header.width, 3):
            raise damaged(header.kind, "the decoder rejects its pixel data", data, self.place_name())
        return hand_over(orient(pixels if self.mode == "RGB" else _luma(pixels), orientation), scratch, out)

    def _as_bytes(self, value: Any) -> bytes | memoryview:
        if isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return memoryview(value).cast("B")
        if isinstance(value, np.ndarray) and value.dtype == _UINT8 and value.ndim == 1:
            return np.ascontiguousarray(value).data
        got = f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        is_batch = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object)
        fix = "give the file's content, not its path" if isinstance(value, str) else "an array of pixels needs no decode: leave it out"
        raise SpecError(
            f"field {self.field!r} is {got}, expected the bytes of an encoded image (bytes or a 1-D uint8 array)",
            where=self.place_name(),
            fix=BEFORE_BATCH if is_batch else fix,
        )


@overload
def decode(field: str, *, mode: Mode = "RGB", max_pixels: int = _MAX_PIXELS, crop_only: bool = False, out: str | None = None) -> Decode: ...


@overload
def decode(field: Encoded, *, mode: Mode = "RGB", max_pixels: int = _MAX_PIXELS) -> NDArray[np.uint8]: ...


def decode(
    field: str | Encoded,
    *,
    mode: Mode = "RGB",
    max_pixels: int = _MAX_PIXELS,
    crop_only: bool = False,
    out: str | None = None,
) -> Decode | NDArray[np.uint8]:
    """Decode JPEG, PNG or WebP, told apart by content, to uint8 pixels (height, width, channels).

    The EXIF orientation is applied, alpha is dropped, 16 bits become 8 by `>> 8`; docs/image.md has all conversions.

    Args:
        field: the field with the encoded bytes, or the bytes themselves (the pixels are then returned at once).
        mode: "RGB" for 3 channels, "GRAY" for 1.
        max_pixels: height x width above which the image is refused, read from the header before anything is decoded.
        crop_only: leave out the rows below the crop where `random_resized_crop` comes next: a tenth faster, the same pixels.
            Of damaged JPEG files only those that end early are then still found as surely as before: most changed bytes show as data that
            are left over behind the last row, which is what this looks like.
        out: the field for the pixels; the default is `field`.

    Raises:
        PlanError: unknown mode, or a limit that is not a positive number.
        MissingExtra: simplejpeg or OpenCV is not installed.
        DecodeError: (on bytes) not an image that can be read in full.
        SpecError: (on a value) neither a field name nor bytes.
    """
    if mode not in ("RGB", "GRAY"):
        raise PlanError(f"mode={mode!r} is not known", where="image.decode", fix='give "RGB" or "GRAY"')
    if not is_whole(max_pixels, 1):
        raise PlanError(f"max_pixels={max_pixels!r} is not a number of pixels", where="image.decode", fix="give a positive whole number")
    load_simplejpeg()
    operator = Decode(**names(field, out), mode=mode, max_pixels=max_pixels, crop_only=crop_only)
    return operator if isinstance(field, str) else run_now(operator, field)


def _cmyk_to_rgb(cmyk: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert as Adobe writes it, which is inverted (255 = no ink): red = cyan * black / 255, and so on."""
    product = cmyk[..., :3].astype(np.uint16)
    product *= cmyk[..., 3:]
    product += 127
    product //= 255
    return product.astype(np.uint8)


def _luma(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    cv2 = load_cv2()
    gray: NDArray[np.uint8] = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    return gray.reshape(*gray.shape[:2], 1)
