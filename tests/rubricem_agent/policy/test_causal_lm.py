"""Models besides Qwen3: played with their own log-probabilities, loaded as what they are, or refused."""

import json

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BloomConfig,
    BloomForCausalLM,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)
from transformers.integrations import sdpa_attention

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.causal_lm import SequentialDecoder, open_decoder
from rubricem_agent.policy.decoder import Feed
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer, policy_tokenizer
from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_records.rollouts.sampling import Sampling
from tests.rubricem_agent.policy.shared import OBSERVATION, check_logprobs, turn
from tests.shapes import NAMES, tiny


@pytest.mark.parametrize("name", NAMES)
async def test_conversations_side_by_side_have_the_log_probabilities_of_transformers(name, tokenizer, opening):
    model = tiny(name, tokenizer.size)
    policy = LocalPolicy(model, tokenizer, rows=3, max_length=2_000)
    longer = opening._replace(user=opening.user * 3)
    for conversation in [policy.open(one, sampling=Sampling(), seed=1) for one in (opening, longer)]:
        await turn(conversation, 20)
        conversation.observe(OBSERVATION)
        await turn(conversation, 20)
        assert check_logprobs(conversation, model, 1.0, abs=1e-5) > 2
    await policy.aclose()


@pytest.mark.parametrize("name", ["gemma3", "qwen3_5"])
def test_a_row_that_is_truncated_or_copied_continues_as_if_it_had_been_read_so(name):
    model = tiny(name, 100)
    decoder = open_decoder(model, rows=2, max_length=64)
    ids = list(range(3, 43))
    decoder.logits([Feed(0, 0, ids[:30])])
    decoder.copy_prefix(0, 1, length=20)
    both = decoder.logits([Feed(0, 10, ids[20:24]), Feed(1, 20, ids[20:24])])
    for row, whole in enumerate(([*ids[:10], *ids[20:24]], ids[:24])):
        expected = model(torch.tensor([whole])).logits[0, -1]
        torch.testing.assert_close(both[row], expected.detach().float(), atol=1e-5, rtol=0)


def test_keys_and_values_of_grouped_attention_are_not_repeated_and_the_model_computes_what_it_did(monkeypatch):
    def refuse(*_):
        raise AssertionError("keys or values are repeated")

    model, ids = tiny("gemma3", 100), torch.arange(3, 30)[None]
    before = model(ids, attention_mask=torch.ones_like(ids)).logits
    decoder = open_decoder(model, rows=2, max_length=64)
    torch.testing.assert_close(model(ids, attention_mask=torch.ones_like(ids)).logits, before)
    monkeypatch.setattr(sdpa_attention, "repeat_kv", refuse)
    both = decoder.logits([Feed(0, 0, ids[0].tolist()), Feed(1, 0, ids[0, :5].tolist())])
    torch.testing.assert_close(both, before[0, [-1, 4]], atol=1e-5, rtol=0)


def test_a_model_that_needs_more_than_positions_runs_one_row_at_a_time_and_says_so_once(capsys):
    with torch.random.fork_rng():
        bloom = BloomForCausalLM(BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=4)).eval()
    for _ in range(2):
        assert isinstance(open_decoder(bloom, rows=2, max_length=64), SequentialDecoder)
    assert capsys.readouterr().err.count("one conversation at a time") == 1


def test_a_llama_is_loaded_as_a_llama_with_its_tokenizer(tmp_path):
    saved = tiny_tokenizer()
    tiny("llama", len(saved)).save_pretrained(tmp_path)
    saved.save_pretrained(tmp_path)
    assert type(load_model(tmp_path)) is LlamaForCausalLM
    assert load_tokenizer(tmp_path).size == len(saved)


@pytest.mark.parametrize(("ends", "expected"), [([2, 7], {2, 7}), (7, {2, 7}), (0, {0, 2})])
def test_every_end_token_of_the_model_ends_a_turn(tmp_path, ends, expected):
    saved = tiny_tokenizer()
    model = tiny("llama", len(saved))
    model.generation_config.eos_token_id = ends
    model.save_pretrained(tmp_path)
    saved.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).end_ids == expected


def test_what_is_no_causal_language_model_is_refused_before_its_weights_are_read(tmp_path):
    size = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16, "num_attention_heads": 1}
    kinds = [BertForMaskedLM(BertConfig(vocab_size=50, **size)), RwkvForCausalLM(RwkvConfig(vocab_size=50, **size))]
    for index, (model, why) in enumerate(zip(kinds, ["no causal language model", "another state"], strict=True)):
        folder = tmp_path / str(index)
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)  # no weights: reading them would fail otherwise
        with pytest.raises(ConfigError, match=f"{why}.*openai:MODEL@URL"):
            load_model(folder)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "from_next_year"}, "unknown to transformers"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "no causal language model"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused_in_one_sentence(tmp_path, changes, why):
    tiny("llama", 50).config.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["LlamaForCausalLM"]} | changes))
    with pytest.raises(ConfigError, match=why):
        load_model(tmp_path)


def test_weights_of_another_model_are_refused_and_never_filled_with_random_ones(tmp_path):
    tiny("llama", 50).save_pretrained(tmp_path)
    tiny_qwen3(50).config.save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        load_model(tmp_path)


def test_a_folder_with_an_adapter_names_the_command_that_merges_it(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"trainers\.lora ADAPTER OUT"):
        load_model(tmp_path)


def test_a_template_without_a_system_role_begins_the_users_message_with_the_rules():
    saved = tiny_tokenizer()
    saved.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
        "<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    tokenizer = policy_tokenizer(saved)
    text = tokenizer.decode(tokenizer.encode_opening(Opening("Rules.", "Why?")))
    assert text == "<|im_start|>Rules.\n\nWhy?<|im_end|>"


def test_qwen2_trains_and_plays_in_the_precision_of_its_folder(tmp_path):
    tiny("qwen2", 50).to(torch.bfloat16).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert (type(model), model.dtype) == (Qwen2ForCausalLM, torch.bfloat16)
