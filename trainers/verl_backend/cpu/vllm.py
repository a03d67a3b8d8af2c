"""A vLLM plugin for CPUs that lets veRL update the weights of linear layers.

vLLM packs the weights of a CPU's linear layers into another form and drops the parameters, without a switch, so that
the trainer's first weights cannot be loaded. `keep_weights` belongs to the entry point group `vllm.general_plugins`,
which every process of an engine loads. Without VERL_PLATFORM=cpu it does nothing.
"""

import os
from importlib import import_module
from typing import Any

from torch.nn.functional import linear

PATCHED = "vllm.model_executor.layers.utils"


def keep_weights() -> None:
    """Let linear layers keep and use their parameters."""
    if os.environ.get("VERL_PLATFORM") == "cpu":
        layers: Any = import_module(PATCHED)
        layers.dispatch_cpu_unquantized_gemm = multiply_plainly


def multiply_plainly(layer: Any, remove_weight: bool) -> None:
    """Replaces vLLM's `dispatch_cpu_unquantized_gemm`: packs and removes nothing."""
    layer.cpu_linear = linear
