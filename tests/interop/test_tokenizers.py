"""The tokenizers of `tokenizers`, `transformers`, `tiktoken` and `sentencepiece`, trained or made here on a few lines."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feeds import resumed

import penstock as ps
from penstock.errors import PlanError, SpecError

pytestmark = pytest.mark.slow

TEXTS = [str(number**20) + " goes on" * (number % 40) for number in range(600)]
ELEMENTS = [{"text": None if number % 50 == 7 else text} for number, text in enumerate(TEXTS)]


def fast() -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(TEXTS, vocab_size=300, show_progress=False, special_tokens=["<s>", "</s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", "$A $B", [("<s>", 0), ("</s>", 1)])
    return tokenizers.Tokenizer.from_str(made.to_str())


def encoding() -> Any:
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    ranks = {bytes([number]): number for number in range(256)} | {b"go": 256}
    return tiktoken.Encoding("small", pat_str=r"\w+|\s+|.", mergeable_ranks=ranks, special_tokens={"<eot>": 257})


def pieces() -> Any:
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=30, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def of_transformers() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast(), bos_token="<s>", eos_token="</s>", pad_token="</s>")


KINDS = {
    "tokenizers": (fast, lambda made, text: made.encode(text).ids),
    "transformers": (of_transformers, lambda made, text: made(text)["input_ids"]),
    "tiktoken": (encoding, lambda made, text: made.encode_ordinary(text)),
    "sentencepiece": (pieces, lambda made, text: made.encode(text)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_each_text_alone_and_what_is_no_text_is_left_out_by_itself(kind: str) -> None:
    make, encode = KINDS[kind]
    tokenizer = make()
    expected = [encode(tokenizer, element["text"]) for element in ELEMENTS if element["text"] is not None]
    ds = ps.from_source(ELEMENTS).map(ps.text.tokenize("text", tokenizer), on_error=ps.Skip())
    for executor in ("inline", "threads", *["processes"] * (kind != "tiktoken")):  # it pickles those that its plugins name
        with ds.feed(executor=executor, num_workers=2) as feed:
            first = [next(feed)["tokens"].tolist() for _ in range(100)]
            state = feed.state_dict()
            assert first + [element["tokens"].tolist() for element in feed] == expected
        left = [element["tokens"] for element in resumed(ds, state, executor=executor, num_workers=2)]
        assert [ids.tolist() for ids in left] == expected[100:]
        assert {ids.dtype for ids in left} == {np.dtype(np.int32)}


def test_padding_and_truncation_of_other_calls_change_no_ids(tmp_path: Path) -> None:
    tokenizer, alone = of_transformers(), fast()
    tokenizer(TEXTS[:7], padding=True, truncation=True, max_length=4)
    operator = ps.text.tokenize("text", tokenizer)
    tokenizer(TEXTS[:7], padding=True, truncation=True, max_length=5)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        ps.text.tokenize("text", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(PlanError, match=r"tokenizer\.json' is no file of a tokenizer: "):
        ps.text.tokenize("text", tmp_path / "tokenizer.json")
    alone.save(str(tmp_path / "tokenizer.json"))
    of_file = ps.text.tokenize("text", tmp_path / "tokenizer.json")
    for element in ELEMENTS[:7]:
        assert operator(element)["tokens"].tolist() == of_file(element)["tokens"].tolist() == alone.encode(element["text"]).ids
    alone.add_tokens(["another"])
    assert repr(ps.text.tokenize("text", fast())) == repr(of_file) != repr(ps.text.tokenize("text", alone))


GENERATION = (
    "{% for m in messages %}{{ '<s>' + m['role'] }}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '</s>' }}{% endgeneration %}{% else %}{{ m['content'] + '</s>' }}{% endif %}{% endfor %}"
)
MESSAGES = [{"role": role, "content": f" {role} goes on"} for role in ("user", "assistant") * 2]


def parts(messages: Any) -> Any:
    for message in messages:
        yield f"<s>{message['role']}", False
        yield message["content"] + "</s>", message["role"] == "assistant"


def test_a_chat_template_and_the_same_as_a_function_train_what_the_assistant_says() -> None:
    tokenizer = of_transformers()
    tokenizer.chat_template = GENERATION
    ds = ps.from_source([{"messages": MESSAGES}] * 3)
    for operator in (ps.text.chat("messages", tokenizer), ps.text.chat("messages", tokenizer, parts)):
        with ds.map(operator).feed(executor="processes", num_workers=1) as feed:
            *_, last = feed
        assert tokenizer.decode(last["tokens"]) == "".join(text for text, _ in parts(MESSAGES))
        assert tokenizer.decode(last["tokens"][last["loss_mask"]]) == "".join(text for text, trained in parts(MESSAGES) if trained)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(SpecError, match="marks no token as said by the assistant"):
        ps.text.chat("messages", tokenizer)({"messages": MESSAGES})
