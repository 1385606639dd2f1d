"""Documents of 2 to 4 kB to tokens by a fast tokenizer of Hugging Face: blocks of them by `ps.text.tokenize`, each by a map of `encode`.

Both feeds have two workers, that of `encode` two threads. The tokenizer is a byte-level BPE, trained on a part of the documents off the
clock. Their words are made of random syllables, and as frequent as those of natural text.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import rounds
from data import Size

_VOCABULARY = 16_000
_WORDS = 20_000
_TRAINED_ON = 2_000


def _folder(size: Size, root: Path) -> Path:
    return root / "tokenizing" / str(_count(size))


def _count(size: Size) -> int:
    return size.num_integers // 1000


def _prepare(size: Size, root: Path) -> None:
    folder = _folder(size, root)
    if (folder / "tokenizer.json").exists():
        return
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError:
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    syllables = [first + vowel + last for first in "bdfgklmnprst" for vowel in "aeiou" for last in ("", "n", "r", "s")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(_WORDS)]
    weights = [1 / (rank + 3) for rank in range(_WORDS)]
    documents = [" ".join(rng.choices(words, weights, k=rng.randint(350, 700))) for _ in range(_count(size))]
    (folder / "documents.jsonl").write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator(documents[:_TRAINED_ON], trainers.BpeTrainer(vocab_size=_VOCABULARY, show_progress=False))
    tokenizer.save(str(folder / "tokenizer.json"))


def _figures(blocks: bool, workers: int) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise rounds.Missing("tokenizers is not installed") from None
        folder = _folder(run.size, run.root)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenize = ps.text.tokenize("text", tokenizer) if blocks else lambda element: tokenizer.encode(element["text"]).ids
        dataset = ps.read_jsonl(folder / "documents.jsonl").map(tokenize, name="tokenize")
        count = 0
        with dataset.feed(executor="threads" if workers else "inline", num_workers=workers) as feed:
            begin = time.perf_counter()
            for _ in feed:
                count += 1
            seconds = time.perf_counter() - begin
        return {"rate": count / seconds, "element_us": seconds / count * 1e6}

    return measure


CLAIM = rounds.Claim(
    name="tokenizing",
    title="documents to tokens by a fast tokenizer, two workers",
    unit="documents/s",
    prepare=_prepare,
    reference="encode",
    also=("element_us",),
    targets=(rounds.Target(contestant="tokenize", metric="ratio", sense=">=", bound=1.7),),
)

if __name__ == "__main__":
    contestants = {
        "tokenize": _figures(blocks=True, workers=2),
        "tokenize_inline": _figures(blocks=True, workers=0),
        "encode": _figures(blocks=False, workers=2),
        "encode_inline": _figures(blocks=False, workers=0),
    }
    rounds.main(CLAIM, contestants)
