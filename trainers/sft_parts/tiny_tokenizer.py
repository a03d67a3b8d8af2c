"""A small byte-level BPE with ChatML specials and template; the scaffold's tags are tokens of their own."""

from collections.abc import Iterable

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
_WITH_ATTRIBUTES = frozenset({CALL_TOOL, CITE, SNIPPET})


def scaffold_tokens() -> list[str]:
    """The tags as they are written, opening tags with the attributes that they always have."""
    opening = [f"<{tag.name}>" for tag in GRAMMAR if tag.name not in _WITH_ATTRIBUTES]
    calls = [f'<{CALL_TOOL} name="{name}">' for name in (GOOGLE_SEARCH, SNIPPET_SEARCH)]
    ids = [f'<{CITE} id="S_', f'<{SNIPPET} id="S_']
    return [*opening, *calls, *ids, *(f"</{tag.name}>" for tag in GRAMMAR)]


def train_tokenizer(texts: Iterable[str], *, vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens, its tags and specials included.

    A digit is always a token of its own, so that a number is copied digit by digit. Tags are no special tokens: they
    survive decoding, as Qwen3's <think> does.
    """
    tags = scaffold_tokens()
    tokenizer = Tokenizer(models.BPE())
    # Digits first: what is left of them keeps its leading space.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(tags),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_without(text, tags) for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=max_tokens
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def _without(text: str, tags: Iterable[str]) -> str:
    for tag in tags:
        text = text.replace(tag, "\n")
    return text
