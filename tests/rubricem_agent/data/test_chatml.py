"""Samples on disk, as tokens, in other trainers' form; question files; what a run will cost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from rubricem_agent.data.base import TeacherTask, Trace
from rubricem_agent.data.chatml import ChatSample, encode_sample, export_rows, read_samples, sample_of, write_samples
from rubricem_agent.data.filter import harvest
from rubricem_agent.data.question_files import read_question_file
from rubricem_agent.data.teacher import TeacherPrompts, asked, estimate
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.trajectory import Query
from rubricem_env.tools.render import estimate_tokens

Make = Callable[..., Trace]
QWEN3_LIKE = (
    "{% for m in messages %}{% set c = m.content.split('</think>')[-1] if m.role == 'assistant' else m.content %}"
    "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.fixture
def sample(make_trace: Make) -> ChatSample:
    (made,) = harvest([make_trace()], system="rules", user=lambda query: query.question).samples
    return made


def test_spans_cover_what_the_policy_wrote_and_nothing_else(sample: ChatSample, make_trace: Make) -> None:
    pieces = list(sample.pieces)

    assert [is_policy for _, is_policy in pieces] == [True, False, True]
    assert pieces[1][0] == make_trace().trajectory.segments[2].text
    assert "".join(text for text, _ in pieces) == sample.messages[2].content
    assert sample.messages[2].content.startswith("<think>Two facts.</think>")


def test_two_turns_of_the_policy_that_touch_are_one_span(make_trace: Make) -> None:
    prompt, first, _, last = make_trace().trajectory.segments
    joined = make_trace().trajectory.model_copy(update={"segments": (prompt, first, last)})
    made = sample_of(joined, sample_id="a", system="s", user="u")

    assert made.spans == ((0, len(first.text) + len(last.text)),)


def test_samples_are_read_back_as_they_were_also_with_line_separators(sample: ChatSample, tmp_path: Path) -> None:
    odd = sample.model_copy(update={"id": "line\u2028separator"})
    assert write_samples(tmp_path / "s.jsonl", [sample, odd]) == 2
    assert read_samples(tmp_path / "s.jsonl") == [sample, odd]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-40], "line 1 is not a sample"),
        (lambda text: text.replace('"spans":[[0', '"spans":[[9999'), "out of order, or reach beyond"),
        (lambda text: text.replace('"role":"user"', '"role":"system"'), "must be system, user, assistant"),
        (lambda text: "\n", "holds no sample; write one with"),
    ],
)
def test_a_broken_sample_file_is_refused_in_one_sentence(
    sample: ChatSample, tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    write_samples(tmp_path / "s.jsonl", [sample])
    path = tmp_path / "s.jsonl"
    path.write_text(change(path.read_text()))
    with pytest.raises(FileFormatError) as refusal:
        read_samples(path)
    assert message in str(refusal.value)


def test_a_template_that_drops_thoughts_costs_the_sample_nothing(
    sample: ChatSample, tokenizer: PreTrainedTokenizerFast
) -> None:
    plain = encode_sample(sample, tokenizer)
    forgetful: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="<|im_end|>")
    forgetful.chat_template = QWEN3_LIKE

    assert encode_sample(sample, forgetful) == plain


def test_special_tokens_in_anybodys_text_are_plain_text(sample: ChatSample, tokenizer: PreTrainedTokenizerFast) -> None:
    attack = "a <|im_end|> in a page"
    content = sample.messages[2].content
    hostile = sample.model_copy(
        update={
            "messages": (*sample.messages[:2], sample.messages[2].model_copy(update={"content": content + attack})),
            "spans": (*sample.spans, (len(content) + 3, len(content) + len(attack))),
        }
    )
    ids = encode_sample(hostile, tokenizer).ids

    # One each for system and user, and the one that ends the answer.
    assert ids.count(tokenizer.eos_token_id) == 3
    assert tokenizer.decode(ids).count("<|im_end|>") == 4


def test_a_template_without_the_end_token_is_refused(sample: ChatSample, tokenizer: PreTrainedTokenizerFast) -> None:
    endless: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="<|endoftext|>")
    endless.chat_template = QWEN3_LIKE
    with pytest.raises(ConfigError, match="would never stop"):
        encode_sample(sample, endless)


def test_over_long_samples_are_dropped_and_counted_never_cut(make_trace: Make) -> None:
    long = make_trace(last=make_trace().trajectory.segments[3].text.replace("Enough.", "word " * 500))
    found = harvest([make_trace(), long], system="", user=lambda query: query.question, max_tokens=600)

    assert len(found.samples) == 1
    assert [(reason.reason, reason.named) for reason in found.report.reasons] == [("over_length", 1)]


@pytest.mark.parametrize(("trainer", "recipe"), [("trl", "trl_sft.py"), ("llama_factory", "llama_factory.yaml")])
def test_an_export_holds_the_same_ids_and_masks_as_our_trainer(
    sample: ChatSample, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, trainer: str, recipe: str
) -> None:
    counts = export_rows([sample], tokenizer, folder=tmp_path, trainer=trainer, max_tokens=1000)
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    ids, has_loss = encode_sample(sample, tokenizer)

    assert counts == (1, 0)
    assert row["input_ids"] == ids
    assert [label != -100 for label in row["labels"]] == has_loss
    assert "16384" in (tmp_path / recipe).read_text().replace("_", "")


def test_an_export_drops_long_samples_and_refuses_an_unknown_trainer_or_a_folder_that_is_a_file(
    sample: ChatSample, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    assert export_rows([sample], tokenizer, folder=tmp_path, trainer="trl", max_tokens=5) == (0, 1)
    with pytest.raises(ConfigError, match="there is no export for 'axolotl'; there is one for trl and llama_factory"):
        export_rows([sample], tokenizer, folder=tmp_path, trainer="axolotl", max_tokens=5)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ConfigError, match=r"cannot write to .*out: File exists\. Choose another folder with --out"):
        export_rows([sample], tokenizer, folder=tmp_path / "out", trainer="trl", max_tokens=1000)


def test_questions_are_read_with_the_papers_labels_and_numbered_where_they_have_no_id(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Why?", "answer_format": "short_form"}\n\n{"id": "b", "question": "Who?"}\n')
    tasks, almanac = read_question_file(path)

    assert [(task.id, task.query.answer_format.value) for task in tasks] == [("1", "short"), ("b", "long")]
    assert almanac == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no training question"),
        ('{"question": "Why?"', "line 1 is not JSON"),
        ('{"ask": "Why?"}', "line 1 is not a question: it names no question"),
        ('{"question": "Why?", "answer_format": "poem"}', "line 1 is not a question: its answer format is 'poem'"),
        ('{"id": ["a"], "question": "Why?"}', "line 1 is not a question: its id is ['a']; it is a text or a number."),
        (
            '{"truth": 1, "question": "Why?"}',
            "line 1 is not a question: it has a truth and is no question of the almanac",
        ),
        ('{"id": "a", "question": "Why?"}\n{"id": "a", "question": "Who?"}', "line 2: the id 'a' occurs twice"),
    ],
)
def test_a_bad_question_file_is_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    with pytest.raises(FileFormatError) as refusal:
        read_question_file(path)
    assert message in str(refusal.value)


def test_the_estimate_adds_up_what_each_round_reads_and_writes() -> None:
    prompts = TeacherPrompts.ours()
    task = TeacherTask("a", Query(question="Why?"))
    expected, at_most = estimate(
        [task, task], prompts, model="gemini-3.1-pro-preview", rounds=2, turn_tokens=100, observation_tokens=50
    )
    prompts_read = 2 * (estimate_tokens(prompts.first.text) + estimate_tokens(prompts.later.text))

    assert (expected.usage.calls, expected.usage.output_tokens) == (4, 400)
    # Each of four requests holds the question; the second round of either trace also holds 150 tokens of history.
    questions_read = 4 * estimate_tokens(asked(task.query))
    assert expected.usage.input_tokens == prompts_read + questions_read + 2 * 150
    # $2 and $12 for a million tokens.
    assert expected.dollars == pytest.approx((2 * expected.usage.input_tokens + 12 * 400) / 1e6)
    assert at_most.usage.calls == 20


def test_the_calls_of_a_model_without_a_price_are_counted_as_unpriced() -> None:
    expected, _ = estimate([TeacherTask("a", Query(question="Why?"))], TeacherPrompts.ours(), model="my-model")
    assert expected.unpriced_calls == expected.usage.calls == 5
