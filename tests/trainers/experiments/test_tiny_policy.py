"""The tiny policy: its tokenizer, its training questions, and the whole command on small settings."""

import json
import re
from pathlib import Path

import pytest
import torch

from rubricem_agent.data.chatml import TokenSample, read_samples
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.reflection.candidates import parse_blocks
from rubricem_env.scaffold.grammar import GRAMMAR
from rubricem_env.testing.tiny_model import tiny_qwen3
from trainers.experiments.tiny_policy import TinyConfig, main, make_policy, make_samples
from trainers.experiments.tiny_pretraining import pad, pretraining_loss, train_tokenizer
from trainers.settings import read_settings
from trainers.sft_parts.launch import OneProcess

CONFIG = Path(__file__).parents[3] / "configs" / "tiny_policy.yaml"
SMALL = [
    "num_worlds=1",
    "drills_per_world=3",
    "epochs=1",
    "hidden_size=16",
    "intermediate_size=16",
    "layers=1",
    "exam_questions=2",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny")
    assert main(["--config", str(CONFIG), *SMALL, f"out={out}", "batch_size=36"]) == 0
    return out


def test_the_whole_way_ends_in_a_model_and_its_grades(made: Path) -> None:
    scores = json.loads((made / "exam.json").read_text())

    assert (made / "sft" / "model" / "model.safetensors").exists()
    assert scores["questions"] == 2
    assert 0.0 <= scores["needs_met"] <= 1.0


def test_its_samples_are_of_no_validation_or_test_question_and_some_are_guided(made: Path) -> None:
    samples = read_samples(made / "samples.jsonl")
    guided = [sample for sample in samples if "<reference_examples>" in sample.messages[1].content]

    reflections = [sample for sample in samples if sample.id.endswith("/reflection")]

    # A world of 15 questions in each of 8 domains trains on 9 of them.
    assert len(samples) - len(reflections) == 72
    assert 8 <= len(reflections) <= 30
    assert all("/train-" in sample.id for sample in samples)
    assert 12 <= len(guided) <= 40


def test_guided_samples_show_what_the_bank_offers_and_follow_the_convention(tmp_path: Path) -> None:
    changes = ["num_worlds=1", "faults={miss_convention: 1.0}", "overlooking=0.0", "reflecting=0.0", f"out={tmp_path}"]
    samples = make_samples(read_settings(CONFIG, TinyConfig, changes=changes))
    guided = [sample for sample in samples if "<reference_examples>" in sample.messages[1].content]
    alone = [sample for sample in samples if sample not in guided]
    open_ended = [sample for sample in guided if sample.answer_format != "exact"]

    assert open_ended
    assert len(guided) < len(alone)
    assert any("Similar question 2" in sample.messages[1].content for sample in guided)
    assert any("You have worked on exactly this question before" in sample.messages[1].content for sample in guided)
    assert all("reporting convention" in sample.messages[2].content for sample in open_ended)
    assert not any("reporting convention" in sample.messages[2].content for sample in alone)


def test_a_reflection_is_asked_for_as_the_reflector_asks_and_has_its_form(made: Path) -> None:
    samples = read_samples(made / "samples.jsonl")
    reflection = next(sample for sample in samples if sample.id.endswith("/reflection"))
    attempt = next(sample for sample in samples if sample.id == reflection.id.removesuffix("/reflection"))
    blocks = parse_blocks(reflection.messages[2].content)

    assert not isinstance(blocks, Refusal)
    assert reflection.messages[0].content == "Reflect."
    assert attempt.messages[2].content.rpartition("<answer>")[2] in reflection.messages[1].content
    assert reflection.spans == ((0, len(reflection.messages[2].content)),)


def test_a_reading_task_repeats_facts_of_its_pages_after_the_snippet_with_the_fact(made: Path) -> None:
    tasks = read_samples(made / "drills.jsonl")

    assert len(tasks) == 3
    for task in tasks:
        pages = dict(re.findall(r'<snippet id="(S_\d)">(.*?)</snippet>', task.messages[1].content, re.DOTALL))
        facts = re.findall(r"(S_\d): The (\w+) of ([\w ]+) is (.+?)\.(?= S_|$)", task.messages[2].content)
        assert facts
        assert all(part in pages[snippet] for snippet, *parts in facts for part in parts)


def test_the_same_seed_makes_the_same_samples_and_weights(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        config = read_settings(CONFIG, TinyConfig, changes=[*SMALL, f"out={tmp_path / name}"])
        config.out.mkdir()
        folder = make_policy(config, make_samples(config))
        made.append(((config.out / "samples.jsonl").read_bytes(), (folder / "model.safetensors").read_bytes()))

    assert made[0] == made[1]


def test_each_tag_is_one_token_that_survives_decoding_and_so_is_each_number_of_the_texts() -> None:
    tokenizer = train_tokenizer(["The width of Calm Bridge is 120 m."] * 3, vocabulary=330, max_tokens=100)
    for name in GRAMMAR:
        (token,) = tokenizer(f"</{name}>", add_special_tokens=False).input_ids
        assert tokenizer.decode([token], skip_special_tokens=True) == f"</{name}>"

    assert tokenizer.tokenize("is 120 m")[-3:] == ["is", "Ġ120", "Ġm"]
    assert tokenizer.tokenize(" 121") == ["Ġ", "1", "2", "1"]


def test_any_text_comes_back_as_it_was() -> None:
    tokenizer = train_tokenizer(["plain words"], vocabulary=330, max_tokens=100)
    text = ' <cite id="S_12">Ünïcode 漢字\n\t 7,5 %</cite><|im_end|>'
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids

    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_padding_changes_nothing_in_the_pretraining_loss() -> None:
    model = tiny_qwen3(vocab_size=64)
    samples = [TokenSample([1, 2, 3, 4, 5], [False, False, True, True, True]), TokenSample([6, 7], [False, True])]
    process = OneProcess("fp32", torch.device("cpu"))
    together = pretraining_loss(model, *pad(samples), process=process)
    apart = [float(pretraining_loss(model, *pad([sample]), process=process).detach()) for sample in samples]

    assert float(together.detach()) == pytest.approx((3 * apart[0] + apart[1]) / 4, rel=1e-5)
