"""Operators for language models: texts to tokens, and what attention kernels take beside packed rows (docs/language-models.md)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import whole_number
from penstock._contracts.element import bytes_of
from penstock._system.failing import attempt
from penstock._system.lazy import dataclass
from penstock.errors import MissingExtra, PlanError, SpecError

__all__ = ["attention_fields", "chat", "tokenize"]

Template = Callable[[Any], Iterable[tuple[str, bool]]]


def tokenize(field: str, tokenizer: Any, *, out: str = "tokens", eos: int | None = None) -> TextOperator:
    """Make the operator that replaces a text by its token ids; for `map`, or a call with one element.

    Tokenizers of the three packages compute several texts at a time without the interpreter lock, in the threads of the feed. A function
    of yours runs where `map` runs your functions.

    Args:
        field: the field of the element, a dict, with the text, a str.
        tokenizer: a tokenizer of `tokenizers`, or the path of its file `tokenizer.json`; a fast one of `transformers`, of which nothing is
            cut or padded; an encoding of `tiktoken`, which takes special tokens for plain text; a `SentencePieceProcessor`; or any function
            that takes one text and returns its ids.
        out: the field for the ids, int32 [tokens]. It takes the place of `field`; all other fields stay.
        eos: an id to put behind those of each text.

    Raises:
        PlanError: the tokenizer is of no such kind, or `eos` is no whole number.
        MissingExtra: a path was given, and `tokenizers` is not installed.
        SpecError: (of an element) there is no such field, its value is no text, or the function returned no ids.
    """
    if eos is not None and not 0 <= (-1 if (number := whole_number(eos)) is None else number) < 1 << 31:
        raise PlanError(
            f"eos={eos!r} is no id of a token", where="text.tokenize()", fix="give the whole number that the tokenizer has for it"
        )
    encoder = _Encoder.of(tokenizer)
    convert = partial(_tokens, encoder, [] if eos is None else [eos], out)
    users = None if encoder.library else encoder.given
    return TextOperator("tokenize", field, f"{encoder.shown}, out={out!r}, eos={eos}", convert, users)


def chat(field: str, tokenizer: Any, template: Template | None = None, *, out: str = "tokens") -> TextOperator:
    """Make the operator that replaces a conversation by its token ids and by which of them the assistant says; for `map`.

    Without `template` the tokenizer is one of `transformers` with a chat template that marks what the assistant says, as
    `{% generation %} ... {% endgeneration %}`.

    Args:
        field: the field of the element, a dict, with the messages: a list of dicts such as {"role": "user", "content": "Hello"}.
        tokenizer: as for `tokenize`, where a template is given. No special tokens are added.
        template: a function that takes the messages and returns the parts of the conversation, in order: (text, whether it is trained).
            The parts are turned into tokens one by one.
        out: the field for the ids, int32 [tokens]. They and `loss_mask`, bool [tokens], True for a token that the assistant says, take the
            place of `field`; all other fields stay.

    Raises:
        PlanError: no template is given, and the tokenizer has none.
        SpecError: (of an element) there is no such field, or the tokenizer's template marks nothing as said by the assistant.
    """
    encoder = _Encoder.of(tokenizer)
    if template is not None:
        if not callable(template):
            raise PlanError(
                f"template={template!r:.60} is no function", where="text.chat()", fix="give a function that returns (text, trained) parts"
            )
        users = template if encoder.library else (encoder.given, template)
        shown, convert = _name_of(template), partial(_by_parts, encoder, template, out)
    elif given := getattr(tokenizer, "chat_template", None):
        users, shown = deepcopy(tokenizer), f"template {crc32(str(given).encode()):08x}"
        convert = partial(_by_template, users, out)
    else:
        raise PlanError(
            f"{type(tokenizer).__name__} has no chat template",
            where="text.chat()",
            fix="give a tokenizer of transformers that has one, or template=, a function that returns (text, trained) parts",
        )
    return TextOperator("chat", field, f"{encoder.shown}, {shown}, out={out!r}", partial(map, convert), users)


def attention_fields(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields that variable-length attention takes to packed rows; for `map`, on one row or behind `batch`.

    The fields have the names that FlashAttention and Hugging Face give them. They follow from `segment_ids`: neighbours in a row that have
    the same id are one segment. The padding of a row is a segment of its own, so that the segments cover all tokens of the batch laid flat,
    row after row. No segment goes on in the next row.

    Args:
        batch: a dict with `segment_ids`, integers [length] or [batch, length], 0 for padding, as `pack_sequences` and `read_tokens(eos=)`
            give them. From a field `positions` of the same shape come the position numbers of the tokens; without it they begin at 0 in
            each segment.

    Returns:
        A new dict of the fields of `batch` and of

        - `position_ids`: int32, as `segment_ids` in shape; in padding counted from 0.
        - `cu_seqlens`: int32 [segments + 1], where each segment begins in the flat batch, then the number of all tokens.
        - `max_seqlen`: an int, the tokens of the longest segment, padding included.
        - `loss_mask`: bool, as `segment_ids` in shape. True for a token behind another one of its segment, which predicts it; False for the
            first token of a segment and for padding, and where `batch` has a `loss_mask` that is False.

    Raises:
        SpecError: the batch is no dict with such `segment_ids`, or `positions` has another shape.
    """
    segments = _integers(batch, "segment_ids")
    if segments.ndim not in (1, 2):
        raise _wrong(f"'segment_ids' has shape {list(segments.shape)}, not [length] or [batch, length]")
    goes_on = np.zeros(segments.shape, np.bool_)
    np.equal(segments[..., 1:], segments[..., :-1], out=goes_on[..., 1:])
    borders = np.append(np.flatnonzero(~goes_on), segments.size).astype(np.int32)
    sizes = np.diff(borders)
    position_ids = (np.arange(segments.size, dtype=np.int32) - np.repeat(borders[:-1], sizes)).reshape(segments.shape)
    is_token = segments != 0
    learnt = np.asarray(batch.get("loss_mask", is_token))
    if learnt.shape != segments.shape or learnt.dtype.kind not in "biu":
        raise _wrong(f"'loss_mask' is {learnt.dtype}{list(learnt.shape)}, and 'segment_ids' has {list(segments.shape)}")
    if "positions" in batch:
        positions = _integers(batch, "positions")
        if positions.shape != segments.shape:
            raise _wrong(f"'positions' has shape {list(positions.shape)}, and 'segment_ids' has {list(segments.shape)}")
        np.copyto(position_ids, positions, where=is_token)
    return {
        **batch,
        "position_ids": position_ids,
        "cu_seqlens": borders,
        "max_seqlen": int(sizes.max(initial=0)),
        "loss_mask": goes_on & is_token & (learnt != 0),
    }


# -- the operators ----------------------------------------------------------------------------------------------------------------

_CHUNK_BYTES = 1 << 17
"""Of texts that are encoded at once: what `tokenizers` makes of them takes 25 times as much before it is turned into ids."""


@dataclass(frozen=True, slots=True, repr=False)
class TextOperator:
    """Replace a field of an element by other fields. Made by `tokenize` and `chat`.

    Attributes:
        name: of the operator.
        field: the field that is replaced.
        shown: the other arguments, as a plan says them.
        convert: from the values of the field in several elements to what replaces each.
        users_object: the object of the user that it calls. Without one, several elements are computed at a time.
    """

    name: str
    field: str
    shown: str
    convert: Callable[[list[Any]], Iterable[dict[str, Any]]]
    users_object: Any

    def __repr__(self) -> str:
        return f"text.{self.name}({self.field!r}, {self.shown})"

    def __call__(self, element: Mapping[str, Any]) -> dict[str, Any]:
        return self._at_once([element])[0]

    def over_block(self, elements: Sequence[Any]) -> Callable[[Any], Any] | None:
        """See `BlockFunction`."""
        made = self._made(elements)
        return (lambda _: next(made)) if self.users_object is None else None

    def _made(self, elements: Sequence[Any]) -> Iterator[dict[str, Any]]:
        sizes = accumulate(map(bytes_of, elements))
        for _, group in groupby(zip(sizes, elements, strict=True), lambda pair: pair[0] // _CHUNK_BYTES):
            chunk = [element for _, element in group]
            yield from attempt(self._at_once, chunk) or map(self, chunk)  # one that fails does so by itself

    def _at_once(self, elements: Sequence[Any]) -> list[dict[str, Any]]:
        for element in elements:
            if not isinstance(element, Mapping) or self.field not in element:
                raise SpecError(
                    f"the element is {_fields_of(element)}, and has no {self.field!r}",
                    where=f"text.{self.name}()",
                    fix="name a field that it has",
                )
        made = self.convert([element[self.field] for element in elements])
        return [
            {key: value for key, value in element.items() if key != self.field} | fields
            for element, fields in zip(elements, made, strict=True)
        ]


def _tokens(encoder: _Encoder, eos: list[int], out: str, texts: list[Any]) -> list[dict[str, Any]]:
    for text in texts:
        if not isinstance(text, str):
            raise SpecError(
                f"the field is a {type(text).__name__}, and no text",
                where="text.tokenize()",
                fix="name a field with a str; turn bytes into one in a map before, as value.decode()",
            )
    return [{out: np.append(ids, np.array(eos, np.int32))} for ids in encoder.ids(texts, special=True)]


def _by_template(tokenizer: Any, out: str, messages: Any) -> dict[str, Any]:
    made = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    if not any(made["assistant_masks"]):
        raise SpecError(
            "the chat template marks no token as said by the assistant",
            where="text.chat()",
            fix="put {% generation %} and {% endgeneration %} around it in the template, or give template=, a function that returns "
            "(text, trained) parts; leave conversations without an assistant out by a filter before",
        )
    return {out: _as_ids(made["input_ids"]), "loss_mask": np.array(made["assistant_masks"], np.bool_)}


def _by_parts(encoder: _Encoder, template: Template, out: str, messages: Any) -> dict[str, Any]:
    parts = list(template(messages))
    wrong = next((part for part in parts if not isinstance(part, tuple) or len(part) != 2 or not isinstance(part[0], str)), None)
    if wrong is not None:
        raise SpecError(f"the template gave {wrong!r:.60}", where="text.chat()", fix="let it return pairs: (text, whether it is trained)")
    ids = encoder.ids([text for text, _ in parts], special=False)
    none = np.empty(0, np.int32)
    return {
        out: np.concatenate([none, *ids]),
        "loss_mask": np.repeat(np.array([is_trained for _, is_trained in parts], np.bool_), list(map(len, ids))),
    }


# -- tokenizers -------------------------------------------------------------------------------------------------------------------

_LIBRARIES: dict[str, Callable[[Any, list[str], bool], Iterable[Any]]] = {
    "tokenizers": lambda given, texts, special: [found.ids for found in given.encode_batch_fast(texts, add_special_tokens=special)],
    "tiktoken": lambda given, texts, special: map(given.encode_ordinary, texts),  # its own batches start threads for each call
    "sentencepiece": lambda given, texts, special: given.encode(texts, **({} if special else {"add_bos": False, "add_eos": False})),
    "": lambda given, texts, special: map(given, texts),
}
"""How the tokenizers of each package, and functions, encode several texts, with special tokens or without."""


@dataclass(frozen=True, slots=True)
class _Encoder:
    """A tokenizer as a function of several texts.

    Attributes:
        library: the package that it is of; "" for a function of one text.
        given: the tokenizer. Of `tokenizers` a copy: `transformers` changes its padding with each call, and the ids of a text must not
            depend on that, nor on its neighbours.
        shown: what a plan says of it, the same in every process.
    """

    library: str
    given: Any
    shown: str

    @classmethod
    def of(cls, tokenizer: Any) -> _Encoder:
        if isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = _loaded(os.fspath(tokenizer))
        given = getattr(tokenizer, "backend_tokenizer", tokenizer)
        library = type(given).__module__.partition(".")[0]
        if library == "tokenizers":
            given = deepcopy(given)
            given.no_padding()
            if hasattr(tokenizer, "backend_tokenizer"):
                given.no_truncation()
        if library in _LIBRARIES:
            return cls(library, given, f"{type(given).__name__} {crc32(pickle.dumps(given)):08x}")
        if callable(given):
            return cls("", given, _name_of(given))
        raise PlanError(
            f"a {type(given).__name__} is no tokenizer",
            where="the tokenizer of an operator of ps.text",
            fix="give one of tokenizers, transformers, tiktoken or sentencepiece, or a function of one text that returns its ids",
        )

    def ids(self, texts: list[str], *, special: bool) -> list[NDArray[np.int32]]:
        return list(map(_as_ids, _LIBRARIES[self.library](self.given, texts, special)))


def _loaded(path: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(
            f"tokenizers, which reads {path!r}, cannot be imported: {error}",
            where="the tokenizer of an operator of ps.text",
            fix='pip install "penstock[text]"',
        ) from error
    data = Path(path).read_bytes()
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # it has no class of its own
        raise PlanError(
            f"{path!r} is no file of a tokenizer: {error}",
            where="the tokenizer of an operator of ps.text",
            fix="give the path of a tokenizer.json, as the save() of a tokenizer writes it",
        ) from error


def _name_of(fn: Any) -> str:
    text = str(getattr(fn, "__qualname__", repr(fn)))
    return type(fn).__qualname__ if " at 0x" in text else text


def _as_ids(found: Any) -> NDArray[np.int32]:
    ids = np.asarray(found)
    if ids.ndim != 1 or (ids.size and (ids.dtype.kind not in "iu" or ids.max() >= 1 << 31 or ids.min() < -1 << 31)):
        raise SpecError(
            f"the tokenizer gave {found!r:.60}, a {type(found).__name__}, and no ids",
            where="text.tokenize()",
            fix="let it return the ids of one text: a list of whole numbers that int32 holds, or an array of one dimension",
        )
    return ids.astype(np.int32)


def _fields_of(element: Any) -> str:
    return f"a dict of {', '.join(map(repr, element)) or 'nothing'}" if isinstance(element, Mapping) else f"a {type(element).__name__}"


def _integers(batch: Mapping[str, Any], name: str) -> NDArray[Any]:
    if not isinstance(batch, Mapping) or name not in batch:
        raise _wrong(f"the batch is {_fields_of(batch)}, and has no {name!r}")
    values = np.asarray(batch[name])
    if values.dtype.kind not in "iu":
        raise _wrong(f"{name!r} is {values.dtype}, not integers")
    return values


def _wrong(what: str) -> SpecError:
    return SpecError(
        what,
        where="text.attention_fields()",
        fix="map it behind pack_sequences() or read_tokens(eos=...), or behind a batch() of such rows",
    )
