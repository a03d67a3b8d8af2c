"""A small byte-level BPE with ChatML specials and template; tags, and the numbers of its school, are single tokens."""

import json
import re
from collections.abc import Iterable
from typing import Any

from tokenizers import (  # type: ignore[import-untyped]
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from rubricem_env.scaffold.grammar import CALL_TOOL, CITE, GRAMMAR, SNIPPET
from rubricem_env.tools.base import GOOGLE_SEARCH, SNIPPET_SEARCH

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ADDRESS = " https://almanac.example/d"
"""Of every page, up to its number."""
_WITH_ATTRIBUTES = frozenset({CALL_TOOL, CITE, SNIPPET})
_NUMBER = re.compile(r" ?\d+")
_SPACE = "Ġ"
"""How byte-level BPE writes a space."""


def scaffold_tokens() -> list[str]:
    """The tags as they are written, opening tags with the attributes that they always have."""
    opening = [f"<{tag.name}>" for tag in GRAMMAR if tag.name not in _WITH_ATTRIBUTES]
    calls = [f'<{CALL_TOOL} name="{name}">' for name in (GOOGLE_SEARCH, SNIPPET_SEARCH)]
    ids = [f'<{CITE} id="S_', f'<{SNIPPET} id="S_']
    return [*opening, *calls, *ids, *(f"</{tag.name}>" for tag in GRAMMAR)]


def train_tokenizer(texts: Iterable[str], *, vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens, its tags and specials included, and the numbers of the texts on top.

    A number of the texts is one token, so that a very small model copies it as it copies a name; any other number is
    read digit by digit. Tags are no special tokens: they survive decoding, as Qwen3's <think> does.
    """
    whole = [*scaffold_tokens(), ADDRESS]
    texts = [_without(text, whole) for text in texts]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(whole),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_NUMBER.sub("\n", text) for text in texts), trainer)
    tokenizer.model = _with_words(tokenizer, (number for text in texts for number in _NUMBER.findall(text)))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in (PAD, START, END)])
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in whole])
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=max_tokens
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def _with_words(tokenizer: Any, words: Iterable[str]) -> Any:
    """The tokenizer's model with the words as tokens of their own, which no merge leads to."""
    trained = json.loads(tokenizer.to_str())["model"]
    vocabulary: dict[str, int] = trained["vocab"]
    for word in sorted({word.replace(" ", _SPACE) for word in words}):
        vocabulary.setdefault(word, len(vocabulary))
    merges = [tuple(merge) for merge in trained["merges"]]
    return models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True)


def _without(text: str, words: Iterable[str]) -> str:
    for word in words:
        text = text.replace(word, "\n")
    return text
