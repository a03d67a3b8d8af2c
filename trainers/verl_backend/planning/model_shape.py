"""The shape of a model of the Qwen3 kind, and the numbers that follow from it: parameters, cache bytes, operations."""

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rubricem_env.domain.errors import ConfigError

_KEYS = MappingProxyType(
    {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "mlp": "intermediate_size",
        "vocabulary": "vocab_size",
    }
)
"""As a Hugging Face config.json names them."""


class ModelShape(NamedTuple):
    """A decoder with grouped-query attention and a gated MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    is_tied: bool = False
    """Whether input and output embeddings are one matrix."""

    @property
    def layer_parameters(self) -> int:
        """Four attention matrices, three of the MLP, two norms of the layer and two of query and key."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys
        return attention + 3 * self.hidden * self.mlp + 2 * self.hidden + 2 * self.head_size

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.embedding_parameters + self.hidden

    @property
    def cache_bytes(self) -> int:
        """Of keys and values of one token in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2

    def forward_operations(self, sequence: float) -> float:
        """Floating-point operations of one token on average over a sequence of that length: matrices and attention."""
        return 2 * self.parameters + 2 * self.layers * self.heads * self.head_size * sequence


KNOWN = MappingProxyType(
    {
        "qwen3-0.6b": ModelShape(28, 1_024, 16, 8, 128, 3_072, 151_936, is_tied=True),
        "qwen3-1.7b": ModelShape(28, 2_048, 16, 8, 128, 6_144, 151_936, is_tied=True),
        "qwen3-4b": ModelShape(36, 2_560, 32, 8, 128, 9_728, 151_936, is_tied=True),
        "qwen3-8b": ModelShape(36, 4_096, 32, 8, 128, 12_288, 151_936),
    }
)
"""For a plan that is made before the model is there."""


def find_model_shape(path: str) -> ModelShape:
    """From the config.json of a folder; without one, from a known name within the path.

    Raises:
        ConfigError: there is neither, or the file is not the config of such a model.
    """
    file = Path(path).expanduser() / "config.json"
    if file.is_file():
        return _read_shape(file)
    name = path.casefold().replace("_", "-")
    for known, shape in KNOWN.items():
        if known in name:
            return shape
    raise ConfigError(
        f"the model {path!r} is no folder with a config.json, and its name tells no size; known are "
        f"{', '.join(KNOWN)}. Give its folder in actor_rollout_ref.model.path."
    )


def _read_shape(file: Path) -> ModelShape:
    try:
        fields: Any = json.loads(file.read_text(encoding="utf-8"))
        numbers = {name: int(fields[key]) for name, key in _KEYS.items()}
        head_size = int(fields.get("head_dim") or numbers["hidden"] // numbers["heads"])
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as cause:
        raise ConfigError(
            f"{file} is not the config of a decoder that can be planned for: {type(cause).__name__}: {cause}. "
            f"It needs {', '.join(_KEYS.values())}."
        ) from cause
    return ModelShape(**numbers, head_size=head_size, is_tied=bool(fields.get("tie_word_embeddings")))
