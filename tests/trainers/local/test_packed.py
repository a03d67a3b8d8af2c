"""Samples end to end: every token once, shared beginnings once, and the same hidden states as sample by sample."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import LlamaForCausalLM, MistralForCausalLM, Qwen3ForCausalLM

from rubricem_agent.learn.samples import Batch, Sample, pad_batch
from rubricem_agent.policy.dense_decoder import is_dense
from rubricem_env.testing.tiny_model import tiny_qwen3
from tests.shapes import tiny
from trainers.local import packed
from trainers.local.packed import Pack, SampleTokens, pack_samples, packed_hidden

pytestmark = pytest.mark.no_cover

VOCABULARY = 40


def batch_of(rows: list[list[int]]) -> Batch:
    samples = [
        Sample(ids, [-1, *[0] * (len(ids) - 1)], np.zeros(len(ids)), [0.0] * len(ids), 1.0, 0) for ids in rows if ids
    ]
    return pad_batch(samples, pad_id=0)


def unpacked(pack: Pack) -> list[list[int]]:
    """The samples, token by token, from where the pack says that they lie."""
    lengths = [run.length for run in pack.runs]
    return [
        pack.token_ids[pack.indices(np.full(length, row), np.arange(length))].tolist()
        for row, length in enumerate(lengths)
    ]


@given(st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=12), max_size=9), st.integers(1, 40))
@settings(max_examples=150)
def test_every_sample_can_be_read_back_and_packs_keep_to_the_limit(rows, limit):
    batch = batch_of(rows)
    packs = pack_samples(batch, max_tokens=limit)
    assert [ids for pack in packs for ids in unpacked(pack)] == rows
    assert all(len(pack.token_ids) <= limit or pack.part.num_samples == 1 for pack in packs)
    assert sum(pack.part.num_policy_tokens for pack in packs) == batch.num_policy_tokens


def test_siblings_share_their_prompt_and_a_short_common_beginning_is_read_again():
    # 6 of 8 tokens alike: shared; 1 of 5 alike: not worth it.
    rows = [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 9, 9], [1, 9, 9, 9, 9]]
    (pack,) = pack_samples(batch_of(rows), max_tokens=100)
    assert pack.runs == (SampleTokens(0, 0, 0, 8), SampleTokens(0, 6, 8, 10), SampleTokens(10, 0, 10, 15))
    assert pack.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 0, 1, 2, 3, 4]


def test_what_would_be_shared_is_read_again_in_another_pack():
    packs = pack_samples(batch_of([[1, 2, 3, 4], [1, 2, 3, 5]]), max_tokens=4)
    assert [pack.runs for pack in packs] == [(SampleTokens(0, 0, 0, 4),), (SampleTokens(0, 0, 0, 4),)]


def test_a_sample_that_is_a_beginning_of_its_sibling_leaves_each_its_last_token():
    (pack,) = pack_samples(batch_of([[1, 2, 3, 4], [1, 2, 3]]), max_tokens=100)
    assert pack.runs == (SampleTokens(0, 0, 0, 4), SampleTokens(0, 2, 4, 5))


def ungrouped_qwen3() -> Qwen3ForCausalLM:
    """As many heads of keys as of queries."""
    config = tiny_qwen3(VOCABULARY).config
    config.num_key_value_heads = config.num_attention_heads
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).eval()


MODELS = {"grouped": lambda: tiny_qwen3(VOCABULARY), "ungrouped": ungrouped_qwen3}
MODELS |= {name: partial(tiny, name, VOCABULARY) for name in ("llama", "mistral", "qwen2")}


@pytest.mark.parametrize("make_model", MODELS.values(), ids=MODELS)
def test_packed_hidden_states_and_gradients_are_those_of_the_model_sample_by_sample(make_model):
    model = make_model()
    rows = [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 9, 9], [7, 6, 5], [7, 6, 4, 4]]
    (pack,) = pack_samples(batch_of(rows), max_tokens=100)
    assert [run.shared for run in pack.runs] == [0, 6, 0, 2]
    hidden = packed_hidden(model, pack)
    torch.manual_seed(1)
    loss, plain = torch.zeros(()), torch.zeros(())
    for row, ids in enumerate(rows):
        expected = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]
        found = hidden[torch.as_tensor(pack.indices(np.full(len(ids), row), np.arange(len(ids))))]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        weights = torch.randn_like(expected)
        loss, plain = loss + (found * weights).sum(), plain + (expected * weights).sum()
    parameters = [one for one in model.model.parameters() if one.requires_grad]
    for ours, theirs in zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("width", "height"), [(24, 40), (40, 24), (32, 32)])
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_products_by_onednn_and_their_gradients_are_those_of_the_module(width, height):
    torch.manual_seed(2)
    linear, states = torch.nn.Linear(width, height, bias=False), torch.randn(128, width, requires_grad=True)
    upstream = torch.randn(128, height)
    found = []
    for product in (packed._Product.apply(states, linear.weight), linear(states)):
        found.append((product, *torch.autograd.grad((product * upstream).sum(), [states, linear.weight])))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_linear_module_that_is_wrapped_or_has_a_bias_computes_itself():
    class Twice(torch.nn.Linear):
        def forward(self, states):
            return 2 * super().forward(states)

    states = torch.randn(128, 8)
    for module in (Twice(8, 4, bias=False), torch.nn.Linear(8, 4), torch.nn.Linear(8, 4, bias=False).double()):
        wide = states.to(module.weight.dtype)
        assert torch.equal(packed._project(module, wide), module(wide))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Qwen3ForCausalLM, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}),
        (MistralForCausalLM, {"sliding_window": 4}),
        (LlamaForCausalLM, {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}}),
        (type("Changed", (LlamaForCausalLM,), {}), {}),
    ],
)
def test_what_these_layers_do_not_compute_is_read_by_transformers(kind, changes):
    size = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    size |= {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}
    assert not is_dense(kind(kind.config_class(**size, **changes)))
    assert all(is_dense(make_model()) for make_model in MODELS.values())
