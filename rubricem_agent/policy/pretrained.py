"""A model folder as transformers writes it: weights, tokenizer and chat template, read without the network.

The path `tiny` means the policy that comes with the package.
"""

from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.shipped import model_folder
from rubricem_agent.policy.tokenizer import PolicyTokenizer, TokenizerParts
from rubricem_env.domain.errors import ConfigError, ModelError, boundary


def load_model(path: Path) -> Qwen3ForCausalLM:
    """The weights, in the precision that they were saved in.

    Raises:
        ConfigError: the folder holds no Qwen3 model.
        ModelError: the folder is damaged.
    """
    path = model_folder(path)
    if not (path / "config.json").is_file():
        raise ConfigError(f"{path} holds no config.json; give the folder that save_pretrained wrote.")
    with boundary(ModelError, f"load the model in {path}"):
        model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(path, local_files_only=True, dtype="auto")
    model.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))  # type: ignore[arg-type]
    model.train(False)
    return model


def load_tokenizer(path: Path) -> PolicyTokenizer:
    """The tokenizer of a model folder.

    Raises:
        ConfigError: there is none, it has no chat template, or it is not byte-level.
    """
    path = model_folder(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{path} holds no tokenizer: {cause}. Save one beside the model.") from cause
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"the tokenizer in {path} is a {type(tokenizer).__name__}; token mode needs a fast one.")
    return policy_tokenizer(tokenizer)


def policy_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PolicyTokenizer:
    """A transformers tokenizer as the policy uses it."""
    if not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template; add chat_template.jinja to the model's folder.")

    def render(opening: Opening) -> str:
        messages = [{"role": "system", "content": opening.system}, {"role": "user", "content": opening.user}]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    end = tokenizer.eos_token_id
    return PolicyTokenizer.of(
        TokenizerParts(tokenizer.backend_tokenizer, render, frozenset([end] if end is not None else []))
    )
