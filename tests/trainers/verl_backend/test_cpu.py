"""What runs on a CPU: the engine on transformers, and the plugin of vLLM."""

import asyncio
import sys
from types import ModuleType

import pytest
import torch

from rubricem_agent.policy.local import load_model
from trainers.verl_backend.cpu import vllm
from trainers.verl_backend.cpu.server import ReplicaServer

PARAMS = {"temperature": 1.0, "max_tokens": 24}


@pytest.fixture
def server(model_folder):
    return ReplicaServer(str(model_folder), max_length=512, rows=4, seed=0, dtype="float32")


def weights(model_folder, *, scale=1.0):
    return {name: tensor * scale for name, tensor in load_model(model_folder).state_dict().items()}


async def test_tokens_come_with_a_log_probability_each_and_the_number_of_the_weights(server, model_folder):
    await server.load_weights(weights(model_folder), 3)
    await server.wake_up()
    drawn = await server.generate([1, 2, 3], PARAMS, "r")
    assert 0 < len(drawn.token_ids) <= 24
    assert len(drawn.log_probs) == len(drawn.token_ids)
    assert drawn.extra_fields == {"global_steps": 3}
    assert drawn.stop_reason == "completed"


async def test_a_seeded_request_draws_the_same_tokens_whatever_came_before(server):
    await server.wake_up()
    seeded = [(await server.generate([1, 2, 3], {**PARAMS, "seed": 7}, "r")).token_ids for _ in range(2)]
    other = (await server.generate([1, 2, 3], {**PARAMS, "seed": 8}, "r")).token_ids
    assert seeded[0] == seeded[1] != other


async def test_a_request_that_comes_while_weights_change_waits_for_them(server, model_folder):
    await server.abort_all_requests()
    request = asyncio.create_task(server.generate([1, 2, 3], PARAMS, "r"))
    await asyncio.sleep(0.05)
    assert not request.done()
    await server.load_weights(weights(model_folder), 8)
    await server.resume_generation()
    assert (await request).extra_fields == {"global_steps": 8}


async def test_a_server_that_is_taken_out_of_rotation_rejects_requests_until_it_is_back(server):
    await server.abort_all_requests(reject_request=True)
    away = await server.generate([1, 2, 3], PARAMS, "r")
    assert (away.stop_reason, away.token_ids) == ("aborted", [])
    await server.resume_generation()
    assert (await server.generate([1, 2, 3], PARAMS, "r")).stop_reason == "completed"


async def test_a_running_request_is_aborted_with_the_tokens_it_has(server):
    await server.wake_up()
    request = asyncio.create_task(server.generate([1, 2, 3], {"temperature": 1.0, "max_tokens": 400}, "r"))
    while not server._running or not next(iter(server._running)).ids:
        await asyncio.sleep(0)
    await server.abort_all_requests()
    drawn = await request
    assert drawn.stop_reason == "aborted"
    assert 0 < len(drawn.token_ids) < 400


async def test_new_weights_are_those_that_draw_and_nothing_is_remembered_of_the_old_ones(server, model_folder):
    await server.wake_up()
    greedy = {"temperature": 0.0, "max_tokens": 8}
    before = await server.generate([1, 2, 3], greedy, "r")
    await server.load_weights(weights(model_folder, scale=0.5), 1)
    after = await server.generate([1, 2, 3], greedy, "r")
    assert not torch.allclose(torch.tensor(before.log_probs[:1]), torch.tensor(after.log_probs[:1]))


async def test_weights_of_another_model_and_a_prompt_that_fills_the_context_are_refused(server):
    with pytest.raises(ValueError, match="no room"):
        await server.generate([1] * 512, PARAMS, "r")
    with pytest.raises(ValueError, match="other weights than the engine has"):
        await server.load_weights({"something": torch.zeros(1)}, 1)


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
