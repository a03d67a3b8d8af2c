"""Models besides dense Qwen3, trained by their own forward pass, and LoRA."""

import copy

import numpy as np
import pytest
import torch

from rubricem_agent.learn.samples import Batch, Sample, pad_batch
from rubricem_agent.policy.local import load_model
from rubricem_env.domain.errors import ConfigError
from rubricem_env.testing.tiny_model import tiny_qwen3
from tests.shapes import NAMES, tiny
from trainers.local.learner import Learner, LossSettings, policy_logprobs
from trainers.local.packed import pack_samples
from trainers.lora import LoraSettings, add_lora, lora_layers, merge_adapter, save_adapter, without_lora

VOCABULARY = 40


def sample(ids: list[int], sign: float) -> Sample:
    advantages = np.array([0, 0, *[sign] * (len(ids) - 2)], dtype=np.float32)
    return Sample(ids, [-1, -1, *[0] * (len(ids) - 2)], advantages, [0.0] * len(ids), 0.7, 0)


def batch() -> Batch:
    # Both are longer than Gemma's window of 8.
    return pad_batch([sample([5, 6, *range(7, 20)], 1.0), sample([5, 6, *range(30, 20, -1)], -1.0)], pad_id=0)


def learner(model: torch.nn.Module) -> Learner:
    return Learner(model, learning_rate=1e-2, loss=LossSettings(), max_grad_norm=9.0, micro_batch_tokens=1_000)


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(3, 15)[None]).logits


@pytest.mark.parametrize("name", NAMES)
def test_the_log_probabilities_that_are_trained_are_those_of_transformers(name):
    model = tiny(name, VOCABULARY)
    for pack in pack_samples(batch(), max_tokens=0):
        with torch.no_grad():
            found, entropy = policy_logprobs(model, pack)
            ids = torch.tensor(pack.token_ids[None], dtype=torch.long)
            expected = (model(input_ids=ids).logits[0] / 0.7).log_softmax(-1)
        torch.testing.assert_close(found, expected[1:-1].gather(1, ids[0, 2:, None])[:, 0], atol=1e-5, rtol=0)
        torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(-1)[1:-1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_trained_and_saved_as_what_it_is(name, tmp_path):
    trained = learner(tiny(name, VOCABULARY))
    before = logits_of(trained.policy)
    trained.update(batch())
    assert not torch.equal(logits_of(trained.policy), before)
    torch.testing.assert_close(logits_of(trained.reference), before)
    trained.policy.save_pretrained(tmp_path)
    saved = load_model(tmp_path)
    assert type(saved) is type(trained.policy)
    torch.testing.assert_close(logits_of(saved), logits_of(trained.policy))


@pytest.mark.parametrize("name", ["qwen3", *NAMES])
def test_lora_trains_its_updates_alone_and_its_reference_is_the_model_without_them(name):
    model = tiny_qwen3(VOCABULARY) if name == "qwen3" else tiny(name, VOCABULARY)
    base = copy.deepcopy(model.state_dict())
    before = logits_of(model)
    add_lora(model, LoraSettings(rank=2, alpha=4))
    torch.testing.assert_close(logits_of(model), before, rtol=0, atol=0)
    trained = learner(model)
    assert trained.reference is model
    # The reference is the model without its updates: at the first step they are zero, and then the two part.
    assert trained.update(batch()).kl == pytest.approx(0.0, abs=1e-9)
    assert trained.update(batch()).kl > 1e-6
    assert not torch.equal(logits_of(model), before)
    with without_lora(model):
        torch.testing.assert_close(logits_of(model), before, rtol=0, atol=0)
    frozen = {key.replace(".base_layer", ""): tensor for key, tensor in model.state_dict().items()}
    assert all(torch.equal(frozen[key], tensor) for key, tensor in base.items())


def test_a_saved_adapter_is_merged_to_the_model_that_was_trained(tmp_path, policy_folder):
    model = load_model(policy_folder)
    settings = LoraSettings(rank=2, alpha=8, targets=("q_proj", "mlp.up_proj"))
    add_lora(model, settings)
    assert {name.rpartition(".")[2] for name in lora_layers(model)} == {"q_proj", "up_proj"}
    learner(model).update(batch())
    save_adapter(model, tmp_path / "adapter", base=str(policy_folder), settings=settings)
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    torch.testing.assert_close(logits_of(load_model(tmp_path / "merged")), logits_of(model), atol=1e-5, rtol=0)


def test_a_target_that_no_layer_has_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"'query'.*k_proj"):
        add_lora(tiny("llama", 40), LoraSettings(targets=("query",)))


def test_what_is_no_adapter_is_not_merged(tmp_path):
    with pytest.raises(ConfigError, match="holds no LoRA adapter"):
        merge_adapter(tmp_path, tmp_path / "out")
