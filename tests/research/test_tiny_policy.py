"""The tiny policy: its tokenizer, its questions and drills, its training, and the whole command on small settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from research.almanac_traces import make_samples
from research.tiny_policy import TinyConfig, main, make_policy
from research.tiny_pretraining import (
    VALUE,
    LearntText,
    echo_drill,
    first_turn,
    learnt_drill,
    learnt_sample,
    reading_drills,
    word_tokenizer,
)
from research.tiny_training import Course, PaddedBatch, batches, hidden_states, train_course, weighted_loss
from rubricem_agent.data.chatml import ChatSample, read_samples
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.reflection.candidates import parse_blocks
from rubricem_env.scaffold.grammar import GRAMMAR
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.names import split_of_name
from rubricem_env.world.vocabulary import FIRST_WORDS, SECOND_WORDS
from trainers.settings import read_settings

CONFIG = Path(__file__).parents[2] / "configs" / "tiny_policy.yaml"
SMALL = [
    "num_worlds=1",
    "hidden_size=16",
    "intermediate_size=16",
    "layers=1",
    "heads=2",
    "head_dim=8",
    "drills.rounds=2",
    "traces.rounds=2",
    "echoes=5",
    "round_tokens=1000",
    "traces_per_round=8",
    "first_turns=2",
    "drills_per_round=2",
    "save_every=1",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny")
    assert main(["--config", str(CONFIG), *SMALL, f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def samples(made: Path) -> list[ChatSample]:
    return list(read_samples(made / "samples.jsonl"))


def test_the_whole_way_ends_in_a_model_of_at_most_16_mb_and_its_grades(made: Path) -> None:
    scores = json.loads((made / "evaluation.json").read_text())

    assert sum(file.stat().st_size for file in (made / "model").iterdir()) < 16e6
    # Eight domains of three validation questions.
    assert scores["attempts"] == 24
    assert 0.0 <= scores["needs_met"] <= 1.0


def test_its_samples_are_of_no_validation_or_test_question_and_some_are_guided(samples: list[ChatSample]) -> None:
    guided = [sample for sample in samples if "<reference_examples>" in sample.messages[1].content]
    reflections = [sample for sample in samples if sample.id.endswith("/reflection")]

    # A world of 15 questions in each of 8 domains trains on 9 of them.
    assert len(samples) - len(reflections) == 72
    assert 8 <= len(reflections) <= 30
    assert all("/train-" in sample.id for sample in samples)
    assert 12 <= len(guided) <= 40


def held_out_names(text: str) -> set[str]:
    pairs = re.findall(rf"\b({'|'.join(FIRST_WORDS)}) ({'|'.join(SECOND_WORDS)})\b", text)
    return {
        f"{first} {second}"
        for first, second in pairs
        if split_of_name(FIRST_WORDS.index(first), SECOND_WORDS.index(second)) != "train"
    }


def test_no_held_out_name_occurs_in_training_not_even_on_a_page_that_is_shown(samples: list[ChatSample]) -> None:
    rng = np.random.default_rng(0)
    drills = [*reading_drills(100_001, "train", rng, fewest=1, most=6), *(echo_drill(rng) for _ in range(50))]
    texts = [message.content for sample in samples for message in sample.messages]
    texts += [shown + "".join(text for text, _ in said) for shown, said in drills]

    assert held_out_names("Amber Acorn has depth 3 m.") == {"Amber Acorn"}
    assert not set().union(*map(held_out_names, texts))


@pytest.mark.no_cover
def test_guided_samples_show_what_the_bank_offers_and_follow_the_convention(tmp_path: Path) -> None:
    changes = ["num_worlds=1", "faults={miss_convention: 1.0}", "overlooking=0.0", "reflecting=0.0", f"out={tmp_path}"]
    made = make_samples(read_settings(CONFIG, TinyConfig, changes=changes))
    guided = [sample for sample in made if "<reference_examples>" in sample.messages[1].content]
    alone = [sample for sample in made if sample not in guided]
    open_ended = [sample for sample in guided if sample.answer_format != "exact"]

    assert open_ended
    assert len(guided) < len(alone)
    assert any("Similar question 2" in sample.messages[1].content for sample in guided)
    assert any("You have worked on exactly this question before" in sample.messages[1].content for sample in guided)
    assert all("reporting convention" in sample.messages[2].content for sample in open_ended)
    assert not any("reporting convention" in sample.messages[2].content for sample in alone)


def test_a_reflection_is_asked_for_as_the_reflector_asks_and_has_its_form(samples: list[ChatSample]) -> None:
    reflection = next(sample for sample in samples if sample.id.endswith("/reflection"))
    attempt = next(sample for sample in samples if sample.id == reflection.id.removesuffix("/reflection"))
    blocks = parse_blocks(reflection.messages[2].content)

    assert not isinstance(blocks, Refusal)
    assert reflection.messages[0].content == "Reflect."
    assert attempt.messages[2].content.rpartition("<answer>")[2] in reflection.messages[1].content
    assert reflection.spans == ((0, len(reflection.messages[2].content)),)


def test_a_drill_asks_for_facts_that_its_snippets_state_and_weighs_their_values_most() -> None:
    tokenizer = word_tokenizer([], max_tokens=100)
    copied = 0
    for shown, said in reading_drills(100_000, "train", np.random.default_rng(0), fewest=1, most=3):
        values = [text.strip() for text, weight in said if weight == VALUE]
        assert values
        assert all(value in shown for value in values)
        text = learnt_drill(shown, said, tokenizer)
        words = [
            word
            for word, weight in zip(tokenizer.convert_ids_to_tokens(text.ids), text.weights, strict=True)
            if weight == VALUE
        ]
        copied += sum(word in values for word in words)
    assert copied > 100


def test_an_echo_repeats_each_of_its_sentences_once() -> None:
    shown, said = echo_drill(np.random.default_rng(3))
    reply = "".join(text for text, _ in said)

    assert sorted(shown.split(". ")) == sorted(reply.strip().split(". ")) or len(shown) == len(reply.strip())


def test_what_is_copied_weighs_more_and_foreign_text_nothing(made: Path, samples: list[ChatSample]) -> None:
    tokenizer = word_tokenizer([message.content for sample in samples for message in sample.messages], max_tokens=2000)
    exact = next(sample for sample in samples if re.search(r"boxed\{\d", sample.messages[2].content))
    text = learnt_sample(exact, tokenizer)
    words = tokenizer.convert_ids_to_tokens(text.ids)
    weight = dict(zip(range(len(words)), text.weights, strict=True))
    box = max(number for number, word in enumerate(words) if word == "\\boxed{")
    call = words.index("</call_tool>")

    assert (weight[box], weight[box + 1], weight[box + 2]) == (5.0, 8.0, 1.0)
    assert words[call + 1] == "<tool_output>"
    assert weight[call + 1] == 0.0
    opening = first_turn(text, text.ids[call])
    assert opening is not None
    assert opening.ids == text.ids[: call + 1]
    assert first_turn(LearntText([1, 2], [1.0, 1.0]), end=7) is None


@pytest.mark.no_cover
def test_the_same_seed_makes_the_same_samples_and_weights(tmp_path: Path, made: Path) -> None:
    assert main(["--config", str(CONFIG), *SMALL, f"out={tmp_path}"]) == 0

    for file in ("samples.jsonl", "untrained/model.safetensors", "model/model.safetensors"):
        assert (tmp_path / file).read_bytes() == (made / file).read_bytes()


@pytest.mark.no_cover
def test_another_making_may_begin_with_the_drills_of_the_first(tmp_path: Path, made: Path) -> None:
    changes = [f"begin={made}", "faults={}", f"out={tmp_path}"]
    assert main(["--config", str(CONFIG), *SMALL, *changes]) == 0

    assert not (tmp_path / "drills.safetensors").exists()
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == (made / "model" / "tokenizer.json").read_bytes()


def test_a_making_is_not_resumed_with_other_settings(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(CONFIG), *SMALL, "seed=1", f"out={made}"]) == 2
    assert "other settings" in capsys.readouterr().err


def small_model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(shape)


def echoes(round_: int) -> Iterator[LearntText]:
    rng = np.random.default_rng(round_)
    for _ in range(12):
        half = rng.integers(1, 64, size=int(rng.integers(3, 9))).tolist()
        yield LearntText([*half, *half], [0.0] * len(half) + [1.0] * len(half))


COURSE = Course(rounds=4, learning_rate=0.02, embedding_rate=0.01, batch_tokens=64, warmup=5, decay_from=0.5)


def learn(model: Qwen3ForCausalLM, saved: Path, texts: object = echoes) -> dict[str, torch.Tensor]:
    train_course(model, COURSE, texts, saved=saved, save_every=1, seed=0, report=str)  # type: ignore[arg-type]
    return {name: each.detach().clone() for name, each in model.named_parameters()}


def test_a_killed_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    def killed(round_: int) -> Iterator[LearntText]:
        if round_ == 2:
            raise KeyboardInterrupt
        return echoes(round_)

    whole = learn(small_model(), tmp_path / "whole.safetensors")
    with pytest.raises(KeyboardInterrupt):
        learn(small_model(), tmp_path / "killed.safetensors", killed)
    resumed = learn(small_model(), tmp_path / "killed.safetensors")

    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    model = small_model()
    (batch,) = batches(echoes(0), 10_000, np.random.default_rng(0))
    before = float(weighted_loss(model, batch)[0].detach())
    learn(model, tmp_path / "saved.safetensors")

    assert float(weighted_loss(model, batch)[0].detach()) < before


def test_the_lean_forward_pass_computes_what_transformers_computes() -> None:
    model = small_model()
    # Longer than a block of queries.
    ids = torch.randint(0, 64, (2, 450), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.model(input_ids=ids, use_cache=False).last_hidden_state

        torch.testing.assert_close(hidden_states(model, ids), expected, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing_in_the_loss() -> None:
    model = small_model()
    texts = [LearntText([1, 2, 3, 4, 5], [0, 0, 1, 2, 1]), LearntText([6, 7], [0, 1])]
    together = weighted_loss(model, PaddedBatch.of(texts))[0]
    apart = [float(weighted_loss(model, PaddedBatch.of([text]))[0].detach()) for text in texts]

    # The weights of the two add up to 4 and 1.
    assert float(together.detach()) == pytest.approx((4 * apart[0] + apart[1]) / 5, rel=1e-5)


@pytest.mark.no_cover
def test_two_heads_of_the_first_layer_look_at_the_token_before(tmp_path: Path) -> None:
    config = read_settings(CONFIG, TinyConfig, changes=[f"out={tmp_path}", "num_worlds=1"])
    folder = make_policy(config, make_samples(config))
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = torch.randint(300, 1000, (1, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions[0][0]

    assert weights[:2, 5:].argmax(-1).tolist() == [list(range(4, 39))] * 2


def test_each_tag_is_one_token_that_survives_decoding() -> None:
    tokenizer = word_tokenizer([], max_tokens=100)
    for name in GRAMMAR:
        (token,) = tokenizer(f"</{name}>", add_special_tokens=False).input_ids
        assert tokenizer.decode([token], skip_special_tokens=True) == f"</{name}>"


def test_a_figure_and_the_number_of_a_snippet_are_the_same_token_wherever_they_stand() -> None:
    texts = ['S_1: Calm Bridge has width 120 m. S_2: It is \\boxed{120 m} (S_1). <cite id="S_1">']
    words = word_tokenizer(texts, max_tokens=100).tokenize(texts[0])

    assert [word for word in words if "120" in word] == ["120", "120"]
    assert [word for word in words if "S_" in word] == ["S_1", "S_2", "S_1", "S_1"]


def test_each_value_of_the_almanac_is_one_token_seen_or_not() -> None:
    tokenizer = word_tokenizer([], max_tokens=100)
    facts = {value for entity in Almanac.from_seed(5).entities for _, value in entity.facts}

    assert all(tokenizer.tokenize(value)[0] == value.split()[0] for value in facts)


def test_any_text_comes_back_as_it_was() -> None:
    tokenizer = word_tokenizer(["plain words"], max_tokens=100)
    text = ' <cite id="S_12">Ünïcode 漢字\n\t 7,5 %</cite><|im_end|>'
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids

    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
