"""A folded trace as training samples: one for each window, and each turn learnt in one of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from rubricem_agent.data.base import TeacherTask, Trace, TurnReply
from rubricem_agent.data.chatml import encode_sample, read_samples, write_samples
from rubricem_agent.data.filter import harvest
from rubricem_agent.data.generate import Generation, Student
from rubricem_agent.data.teacher import TeacherPrompts
from rubricem_env.domain.trajectory import Origin, Query, Snippet, ToolCall, ToolResult
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.view import views_of
from rubricem_env.tools.render import estimate_tokens
from rubricem_records.files.line_file import LineFile
from tests.rubricem_agent.data.conftest import FIRST, LAST

QUERY = Query(question="How wide is Calm Bridge?")
ROUNDS = 12
CONTEXT = ContextLimits(fold_at=900, fold_to=500, keep=1)


class Killed(Exception):
    """Stands for a kill: nothing after it is done."""


class Steady:
    """A teacher that searches in each round but the last, and keeps what it was asked."""

    name = "steady"

    def __init__(self, *, dies_at: int = 1_000) -> None:
        self.asked: list[str] = []
        self._dies_at = dies_at

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        (trace,) = pending
        if trace.round == self._dies_at:
            raise Killed
        self.asked.append(TeacherPrompts.ours(max_rounds=ROUNDS).request(trace).prompt)
        weighed = f"<think>t</think><state_evaluation>Fact {trace.round}.</state_evaluation>"
        call = f'{weighed}<call_tool name="google_search">query {trace.round}</call_tool>'
        text = FIRST if trace.round == 1 else LAST if trace.round == ROUNDS else call
        return [TurnReply(id=trace.next_id, text=text)]

    async def aclose(self) -> None:
        return


class Pages:
    names = ("google_search",)

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult.found([Snippet(title=f"On {call.query}", text="word " * 80)])


def generation(path: Path, teacher: Steady, context: ContextLimits = CONTEXT) -> Generation:
    return Generation(
        teacher,
        Pages(),
        journal=LineFile(path / "journal.jsonl"),
        max_rounds=ROUNDS,
        max_tokens=100_000,
        student=Student(context=context, system="rules"),
    )


async def written(path: Path, teacher: Steady | None = None, context: ContextLimits = CONTEXT) -> Trace:
    (trace,) = await generation(path, teacher or Steady(), context).run([TeacherTask("q1", QUERY)])
    return trace


async def test_a_window_is_a_sample_and_each_turn_is_learnt_in_one(tmp_path: Path) -> None:
    trace = await written(tmp_path)
    found = harvest([trace], system="rules", user=lambda query: query.question, max_tokens=1_500)
    folds = trace.trajectory.folds
    assert len(found.samples) == len(folds) + 1 > 2
    assert (found.report.traces, found.report.accepted) == (1, 1)

    learnt = [text for sample in found.samples for text, is_policy in sample.pieces if is_policy]
    # The teacher's scratchpad is written <think>.
    turns = [
        segment.text.replace("scratchpad>", "think>")
        for segment in trace.trajectory.segments
        if segment.origin is Origin.POLICY
    ]
    assert learnt == turns
    assert [sample.id for sample in found.samples] == [f"q1#{number}" for number in range(1, len(folds) + 2)]
    assert [sample.ends for sample in found.samples] == [False] * len(folds) + [True]


async def test_a_turn_is_learnt_after_what_the_policy_read_before_it(tmp_path: Path) -> None:
    trace = await written(tmp_path)
    found = harvest([trace], system="rules", user=lambda query: query.question, max_tokens=1_500)
    views = [view.text.removeprefix(QUERY.question) for view in views_of(trace.trajectory)]
    before = [
        sample.messages[2].content[:start].replace("think>", "scratchpad>")
        for sample in found.samples
        for start, _ in sample.spans
    ]
    assert before == [view.replace("think>", "scratchpad>") for view in views]
    assert max(map(estimate_tokens, before)) <= 900


async def test_a_window_that_goes_on_does_not_teach_to_stop(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    trace = await written(tmp_path)
    samples = harvest([trace], system="rules", user=lambda query: query.question, max_tokens=1_500).samples
    assert write_samples(tmp_path / "s.jsonl", samples) == len(samples)
    assert read_samples(tmp_path / "s.jsonl") == samples
    ends = [encode_sample(sample, tokenizer).ids[-1] == tokenizer.eos_token_id for sample in samples]
    assert ends == [False] * (len(samples) - 1) + [True]
    assert '"ends"' not in samples[-1].model_dump_json()


async def test_a_trace_that_never_folds_is_the_sample_that_it_always_was(tmp_path: Path) -> None:
    user = {"system": "rules", "user": lambda query: query.question, "max_tokens": 100_000}
    (plain,) = harvest([await written(tmp_path / "a", context=ContextLimits())], **user).samples
    (unfolded,) = harvest([await written(tmp_path / "b", context=ContextLimits(fold_at=50_000))], **user).samples
    assert plain.model_dump_json() == unfolded.model_dump_json()
    assert plain.id == "q1"


async def test_a_teacher_reads_the_view_and_not_the_record(tmp_path: Path) -> None:
    teacher = Steady()
    trace = await written(tmp_path, teacher)
    assert "Folded: " in teacher.asked[-1]
    assert teacher.asked[-1].count("<snippet ") <= 3 < ROUNDS - 1 == len(trace.trajectory.segments) // 2 - 1
    unfolded = Steady()
    await written(tmp_path / "plain", unfolded, ContextLimits())
    assert max(map(estimate_tokens, teacher.asked)) < max(map(estimate_tokens, unfolded.asked))


async def test_a_run_that_was_killed_folds_as_one_that_was_not(tmp_path: Path) -> None:
    whole = await written(tmp_path / "whole")
    with pytest.raises(Killed):
        await written(tmp_path / "killed", Steady(dies_at=8))
    assert (await written(tmp_path / "killed")).trajectory == whole.trajectory
