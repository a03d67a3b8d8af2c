"""vLLM on a CPU as veRL's sampling engine: its layers keep their weights where an update finds them.

vLLM packs the weights of a CPU's linear layers into another form and drops the parameters. It has no switch for that,
and the first weights from the trainer then find nowhere to go. `keep_weights` is for vLLM's own plugins (the entry
point group `vllm.general_plugins`), which every process of an engine loads. Without VERL_PLATFORM=cpu it does nothing.
"""

import os
from importlib import import_module
from typing import Any

from torch.nn.functional import linear

PATCHED = "vllm.model_executor.layers.utils"


def keep_weights() -> None:
    """Let linear layers multiply by their parameters as they are."""
    if os.environ.get("VERL_PLATFORM") == "cpu":
        layers: Any = import_module(PATCHED)
        layers.dispatch_cpu_unquantized_gemm = multiply_plainly


def multiply_plainly(layer: Any, remove_weight: bool) -> None:
    """In the place of vLLM's `dispatch_cpu_unquantized_gemm`: nothing is packed, and nothing removed."""
    layer.cpu_linear = linear
