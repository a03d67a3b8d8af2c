"""What the tests of teacher data share: a trace written by hand, shipped questions, and a small real tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rubricem_agent.data.base import TeacherTask, Trace
from rubricem_env.domain.trajectory import (
    AnswerFormat,
    Ending,
    Observation,
    Origin,
    Query,
    Segment,
    ToolCall,
    ToolStatus,
    Trajectory,
)
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question

if TYPE_CHECKING:  # the tests of a corpus run without transformers
    from transformers import PreTrainedTokenizerFast

FIRST = (
    "<scratchpad>Two facts.</scratchpad><structured_plan><deep_analysis>a</deep_analysis><rubric>b</rubric>"
    "<research_plan>c</research_plan></structured_plan>"
    '<call_tool name="google_search">Calm Bridge width</call_tool>'
)
SHOWN = '<tool_output>\n<snippet id="S_1">The width of Calm Bridge is 120 m.</snippet>\n</tool_output>'
LAST = (
    "<scratchpad>Enough.</scratchpad><state_evaluation>S_1 has it.</state_evaluation>"
    "<review><rubric_review>met</rubric_review><writing_plan>one line</writing_plan></review>"
    '<answer><cite id="S_1">It is 120 m wide.</cite></answer>'
)


def trace_of(first: str = FIRST, last: str = LAST, *, status: ToolStatus = ToolStatus.OK) -> Trace:
    """A trace of two turns with one tool result between them."""
    query = Query(question="How wide is Calm Bridge?", answer_format=AnswerFormat.SHORT)
    record = Observation(
        status=status, call=ToolCall(name="google_search", query="Calm Bridge width"), snippet_ids=("S_1",)
    )
    segments = (
        Segment(origin=Origin.PROMPT, text=query.question),
        Segment(origin=Origin.POLICY, text=first),
        Segment(origin=Origin.TOOL, text=SHOWN, observation=record),
        Segment(origin=Origin.POLICY, text=last),
    )
    trajectory = Trajectory(
        question=query.question, answer_format=query.answer_format, segments=segments, ending=Ending.ANSWERED
    )
    return Trace(TeacherTask("q1", query), trajectory)


@pytest.fixture
def make_trace() -> Callable[..., Trace]:
    return trace_of


@pytest.fixture(scope="session")
def questions() -> dict[str, Question]:
    return {question.id: question for question in load_questions(shipped_questions_path())}


@pytest.fixture(scope="session")
def tasks(questions: dict[str, Question]) -> list[TeacherTask]:
    """The first six: one fact, one pair, one comparison, and so on."""
    return [TeacherTask(name, query_of(question)) for name, question in list(questions.items())[:6]]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    from research.tiny_pretraining import word_tokenizer

    return word_tokenizer([FIRST, SHOWN, LAST, "How wide is Calm Bridge?"], max_tokens=4096)
