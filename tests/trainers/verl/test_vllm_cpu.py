"""The plugin of vLLM's on a CPU: what it puts in place multiplies by the parameters, and it does so on a CPU alone."""

import sys
from types import ModuleType

import pytest
import torch

from trainers.verl_backend.cpu import vllm


@pytest.fixture
def layers(monkeypatch):
    """The module of vLLM's, which is not installed here."""
    module = ModuleType(vllm.PATCHED)
    module.dispatch_cpu_unquantized_gemm = "vLLM's own"
    parts = vllm.PATCHED.split(".")
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, vllm.PATCHED, module)
    return module


def test_on_a_cpu_a_layer_keeps_its_weight_and_multiplies_by_it(layers, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    vllm.keep_weights()
    layer = torch.nn.Linear(2, 1)
    layers.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    given = torch.ones(1, 2)
    assert torch.equal(layer.cpu_linear(given, layer.weight, layer.bias), layer(given))


def test_elsewhere_vllm_is_left_as_it_is(layers, monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    vllm.keep_weights()
    assert layers.dispatch_cpu_unquantized_gemm == "vLLM's own"
