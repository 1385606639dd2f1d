import io
import itertools
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image.pixels import chunk, difference, exif
from numpy.typing import NDArray
from PIL import Image
from programs import output_of

import penstock.image as image
from penstock._contracts.transform import Scratch, Transform
from penstock.errors import DecodeError, PlanError, SpecError

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]


def test_ycck_jpeg_becomes_rgb() -> None:
    inks = np.random.default_rng(1).integers(0, 256, (4, 4, 4), np.uint8).repeat(8, 0).repeat(8, 1)
    data = simplejpeg.encode_jpeg(inks, colorspace="CMYK", quality=95)
    assert simplejpeg.decode_jpeg_header(data)[2] == "YCCK"
    assert difference(image.decode(data), Image.open(io.BytesIO(data)).convert("RGB")) <= 2


def test_a_palette_becomes_its_colours_with_and_without_transparency(encode: Encode, photo: Photo) -> None:
    palette = Image.fromarray(photo).quantize(40)
    for options in ({}, {"transparency": bytes(range(40))}, {"transparency": 3}):
        with pytest.warns(RuntimeWarning, match='of a palette PNG: mode="unchanged" gives what is stored'):
            assert difference(image.decode(encode(palette, "PNG", **options)), palette.convert("RGB")) == 0


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_16_bits_become_8_by_a_shift(channels: int) -> None:
    deep = np.random.default_rng(2).integers(0, 65536, (30, 40, channels), np.uint16)
    data = cv2.imencode(".png", deep)[1].tobytes()
    shifted = (deep >> 8).astype(np.uint8)
    decode = image.decode("data")
    with pytest.warns(RuntimeWarning, match="makes 8 bits of a 16-bit PNG"):
        found = decode({"data": data})["data"]
    assert difference(found, shifted.repeat(3, 2) if channels == 1 else shifted[..., 2::-1]) == 0
    decode({"data": data})  # and then no more


def test_the_first_picture_of_an_animation_is_taken(encode: Encode, photo: Photo) -> None:
    others = [Image.fromarray(np.roll(photo, 20, 1))]
    assert difference(image.decode(encode(photo, "WEBP", lossless=True, save_all=True, append_images=others)), photo) == 0
    assert difference(image.decode(encode(photo, "PNG", save_all=True, append_images=others)), photo) == 0


def test_the_content_counts_and_not_the_name(encode: Encode, photo: Photo) -> None:
    element = {"path": "really-a-png.jpg", "data": encode(photo, "PNG")}
    assert difference(image.decode("data")(element)["data"], photo) == 0


@pytest.mark.parametrize(
    "wrap", [bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8), lambda data: np.frombuffer(data, np.uint8).repeat(2)[::2]]
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_any_kind_of_bytes_will_do(encode: Encode, photo: Photo, kind: str, wrap: Callable[[bytes], Any]) -> None:
    data = encode(photo, kind, exif=exif(6))
    assert difference(image.decode(wrap(data)), image.decode(data)) == 0


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "GRAY"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_scratch_and_out_give_the_same_pixels_as_a_new_array(encode: Encode, photo: Photo, kind: str, mode: Any, orientation: int) -> None:
    data = encode(photo, kind, exif=exif(orientation))
    operator = image.decode("data", mode=mode)
    fresh = operator.apply(data, (), None, None)
    out = np.zeros((3, *fresh.shape), np.uint8)
    assert operator.apply(data, (), None, out[1]).base is out
    assert difference(out[1], fresh) == 0
    assert not out[0].any()
    assert not out[2].any()
    assert difference(operator.apply(data, (), Scratch(), None), fresh) == 0
    wrong = np.zeros((9, 9, 3), np.uint8)
    assert difference(operator.apply(data, (), Scratch(), wrong), fresh) == 0
    assert not wrong.any()


def test_a_jpeg_is_decoded_into_scratch_without_new_memory(encode: Encode, photo: Photo) -> None:
    scratch, operator = Scratch(), image.decode("data")
    first = operator.apply(encode(photo, "JPEG"), (), scratch, None)
    assert np.shares_memory(first, operator.apply(encode(photo, "JPEG"), (), scratch, None))


def test_the_operator_is_a_transform_that_leaves_the_element_as_it_was(encode: Encode, photo: Photo) -> None:
    operator = image.decode("data", out="pixels")
    assert isinstance(operator, Transform)
    assert (operator.field, operator.out_field, operator.num_draws) == ("data", "pixels", 0)
    element = {"data": encode(photo, "PNG"), "label": 3}
    result = operator(element)
    assert list(element) == ["data", "label"]
    assert list(result) == ["data", "label", "pixels"]
    assert result["data"] is element["data"]


def test_a_truncated_jpeg_says_premature_end(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "JPEG")
    with pytest.raises(DecodeError) as caught:
        image.decode(data[: len(data) // 2])
    assert caught.value.what == "JPEG image is damaged: Premature end of JPEG file"
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_bytes_behind_the_end_of_an_image_are_legal(encode: Encode, photo: Photo, kind: str) -> None:
    data = encode(photo, kind)
    assert difference(image.decode(data + b"\0 appended"), image.decode(data)) == 0


def test_bytes_changed_in_a_jpegs_entropy_data_are_an_error_where_libjpeg_can_tell(encode: Encode, photo: Photo) -> None:
    data = bytearray(encode(photo, "JPEG"))
    middle = len(data) // 2
    data[middle : middle + 100] = b"\xff\xd9" * 50  # the end marker in the middle: fewer blocks than the header says
    with pytest.raises(DecodeError, match="JPEG image is damaged: "):
        image.decode(bytes(data))


def test_any_changed_byte_of_png_pixels_is_an_error(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "PNG")
    start = data.index(b"IDAT")
    for at in range(start, len(data), max(1, (len(data) - start) // 50)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises(DecodeError, match="PNG image is damaged"):
            image.decode(bytes(changed))


def png(width: int, height: int, body: bytes, bits: int = 8, colour: int = 2) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def test_whole_chunks_that_hold_too_few_rows_are_an_error(photo: Photo, capfd: pytest.CaptureFixture[str]) -> None:
    rows = b"".join(b"\0" + row.tobytes() for row in photo)
    assert difference(image.decode(png(100, 75, zlib.compress(rows))), photo) == 0
    for body in (zlib.compress(rows[: len(rows) // 2]), zlib.compress(rows)[:-200]):
        with pytest.raises(DecodeError) as caught:
            image.decode(png(100, 75, body))
        assert caught.value.what == "PNG image is damaged: the decoder rejects its pixel data"
    capfd.readouterr()  # libpng also writes to stderr


@pytest.mark.slow
def test_a_decompression_bomb_is_refused_from_its_header() -> None:
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(bytes(60_001 * 100)) for _ in range(200)) + packer.flush()
    bomb = png(20_000, 20_000, body)
    with pytest.raises(DecodeError) as caught:
        image.decode("data")({"data": bomb})
    assert caught.value.what == "PNG image of 20000 x 20000 = 400000000 pixels is over the limit of 89478485"
    assert caught.value.where == f"image.decode('data'), {len(bomb)} bytes"
    assert "raise max_pixels=" in caught.value.fix


@pytest.mark.parametrize(
    ("value", "got", "fix"),
    [
        ("cat.jpg", "str", "give the file's content, not its path"),
        (np.zeros((4, 4, 3), np.uint8), "uint8[4, 4, 3]", "an array of pixels needs no decode"),
        (np.zeros(9, np.float32), "float32[9]", "needs no decode"),
        (None, "NoneType", "needs no decode"),
    ],
)
def test_what_is_not_bytes_is_a_spec_error_with_field_got_and_expected(value: Any, got: str, fix: str) -> None:
    with pytest.raises(SpecError) as caught:
        image.decode("data")({"data": value})
    assert caught.value.what == f"field 'data' is {got}, expected the bytes of an encoded image (bytes or a 1-D uint8 array)"
    assert caught.value.where == "image.decode('data')"
    assert fix in caught.value.fix


def test_an_unknown_mode_or_limit_is_a_plan_error() -> None:
    with pytest.raises(PlanError) as caught:
        image.decode("data", mode="BGR")  # type: ignore[call-overload]
    assert (caught.value.what, caught.value.where, caught.value.fix) == (
        "mode='BGR' is not known",
        "image.decode",
        'give "RGB", "GRAY" or "unchanged"',
    )
    for limit in (0, -1, True, 1.5):
        with pytest.raises(PlanError) as caught:
            image.decode("data", max_pixels=limit)  # type: ignore[call-overload]
        assert caught.value.what == f"max_pixels={limit!r} is not a number of pixels"
    for name, wrong in itertools.product(("exif", "crop_only"), ("no", None, 2, 0.0)):
        with pytest.raises(PlanError, match=f"{name}={wrong!r} is neither True nor False") as caught:
            image.decode("data", **{name: wrong})  # type: ignore[call-overload]
        assert caught.value.fix == f"give {name} True or False"


@pytest.mark.filterwarnings("ignore:.* that libjpeg warns of")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data(), kind=st.sampled_from(["JPEG", "PROGRESSIVE", "PNG", "WEBP", "EXIF"]))
def test_flipped_bytes_and_cuts_give_an_image_or_a_decode_error(
    encode: Encode, photo: Photo, capfd: pytest.CaptureFixture[str], draw: st.DataObject, kind: str
) -> None:
    small = photo[:24, :33]
    options = {"PROGRESSIVE": {"progressive": True}, "EXIF": {"exif": exif(6)}}.get(kind, {})
    data = bytearray(encode(small, kind if kind in ("PNG", "WEBP") else "JPEG", **options))
    for at, value in draw.draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=8)):
        data[at] = value
    data = data[: draw.draw(st.integers(0, len(data)) | st.just(len(data)))]
    try:
        pixels = image.decode(bytes(data), max_pixels=1_000_000)
    except DecodeError:
        pass  # any other exception fails the test
    else:
        assert pixels.dtype == np.uint8
        assert pixels.ndim == 3
        assert pixels.shape[2] == 3
    capfd.readouterr()


@pytest.mark.parametrize("hidden", [["cv2"], ["simplejpeg", "cv2"]])
def test_a_missing_opencv_is_an_error_that_names_the_extra(hidden: list[str]) -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
        "import penstock.image as image\nfrom penstock.errors import MissingExtra\n"
        "try:\n    image.decode('data'); image.resize('data', 8, antialias=False)\n"
        "except MissingExtra as error:\n    print(error.what, '|', error.where, '|', error.fix)\n"
    )
    said = output_of("-c", code)
    assert said.startswith("OpenCV cannot be imported: ")
    assert '| penstock.image | pip install "penstock[image]"' in said
