"""A small real local policy.

It has a byte-level BPE with Qwen's chat template, and a random Qwen3 of a few thousand weights.
"""

from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rubricem_env.scaffold.grammar import CANONICAL

CHAT_TEMPLATE = (
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tiny_tokenizer(corpus: Iterable[str] = (), *, vocab_size: int = 512) -> PreTrainedTokenizerFast:
    """A real byte-level BPE trained on the scaffold's tags and `corpus`, split and templated like Qwen's."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(SPECIALS),
        show_progress=False,
    )
    tags = [f"<{slash}{name}>" for name in CANONICAL for slash in ("", "/")]
    backend.train_from_iterator([*tags * 20, *corpus], trainer)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE
    )
    return tokenizer


def tiny_qwen3(
    vocab_size: int, *, seed: int = 0, layers: int = 2, hidden: int = 32, max_length: int = 4_096
) -> Qwen3ForCausalLM:
    """Random weights, the same for the same seed: 4 query heads, 2 key heads of 16, tied embeddings."""
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    model.train(False)
    return model
