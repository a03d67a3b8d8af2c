"""The rubrics of all questions, and their saved state."""

import asyncio
import json

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from tests.fakes import rubric


def filled(numbers, weight=1.0):
    rubrics = [rubric(f"r{number}", STAGES[number % 4], weight=weight) for number in numbers]
    scores = {r.id: [number % 3, 1] for number, r in zip(numbers, rubrics, strict=True)}
    known = RubricSet().with_persistent([rubric("given", persistent=True)]).with_proposed(rubrics, step=3)
    return known.pruned(scores, caps=DEEP_RESEARCH.caps, step=3, archive_limit=50)


@given(
    st.dictionaries(st.text(min_size=1), st.lists(st.integers(0, 40), unique=True), max_size=4), st.floats(1e-9, 1e9)
)
def test_a_saved_state_is_restored_exactly(questions, weight):
    buffer, again = RubricBuffer({key: filled(numbers, weight) for key, numbers in questions.items()}), RubricBuffer()
    text = json.dumps(buffer.state_dict(), allow_nan=False)
    again.load_state_dict(json.loads(text))
    assert json.dumps(again.state_dict()) == text
    assert all(again.rubrics(key) == buffer.rubrics(key) for key in questions)


@pytest.mark.parametrize(
    "state",
    [{}, {"version": 2, "questions": {}}, {"version": 1}, {"version": 1, "questions": {"k": '{"active": [1]}'}}],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(state):
    buffer = RubricBuffer({"k": filled([1, 2])})
    with pytest.raises(FileFormatError, match="rubric buffer"):
        buffer.load_state_dict(state)
    assert len(buffer.state_dict()["questions"]) == 1


async def test_one_question_is_edited_by_one_caller_at_a_time():
    buffer = RubricBuffer()

    async def add(number):
        async with buffer.editing("k") as known:
            await asyncio.sleep(0)
            buffer.replace("k", known.with_proposed([rubric(str(number))], step=1))

    await asyncio.gather(*(add(number) for number in range(20)))
    assert len(buffer.rubrics("k").active) == 20


def test_locks_are_made_in_the_loop_that_uses_them():
    buffer = RubricBuffer()

    async def contend():
        async def edit():
            async with buffer.editing("k"):
                await asyncio.sleep(0)

        await asyncio.gather(*(edit() for _ in range(5)))

    asyncio.run(contend())
    asyncio.run(contend())


@pytest.mark.parametrize(
    "state", ["text", True, [1], {}, {"version": 2, "questions": {}}, {"version": 1, "questions": {"a": 1}}]
)
def test_a_buffers_state_that_is_none_is_refused_and_changes_nothing(state):
    buffer = RubricBuffer()
    with pytest.raises(FileFormatError, match="malformed, or of another version"):
        buffer.load_state_dict(state)
    assert buffer.state_dict() == RubricBuffer().state_dict()
