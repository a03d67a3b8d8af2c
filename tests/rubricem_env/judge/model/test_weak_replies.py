"""Replies of two small models, recorded from servers that others wrote: none becomes a score that it does not give."""

import json
from collections import Counter
from pathlib import Path

import pytest

from rubricem_env.llm.chat import ChatReply
from tests.fakes import ScriptedModel
from tests.rubricem_env.judge.model.weak_cases import PURPOSES, Outcome, RecordedReply, ask, play

LINES = Path("tests/fixtures/weak_replies.jsonl").read_text(encoding="utf-8").splitlines()
REPLIES = [RecordedReply.model_validate_json(line) for line in LINES]


async def made_of(recorded: RecordedReply) -> Outcome:
    """What the judge or the episode makes of the reply today."""
    if recorded.purpose == "turn":
        return play(recorded.replies[0].text, recorded.number)
    replies = [ChatReply(text=each.text, model=recorded.model, finish=each.finish) for each in recorded.replies]
    return await ask(ScriptedModel(replies), recorded.purpose, recorded.number)


def test_there_are_many_of_two_models():
    assert Counter(each.model for each in REPLIES) == {"smollm2-135m": 100, "gemma3-270m": 100}


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_each_becomes_what_it_became_when_it_was_recorded(purpose):
    for recorded in REPLIES:
        if recorded.purpose == purpose:
            outcome = await made_of(recorded)
            assert outcome.said == recorded.outcome, f"{recorded.model}, {purpose} {recorded.number}"


async def test_what_is_no_json_object_gives_no_score_and_no_rubric():
    for recorded in REPLIES:
        if recorded.purpose != "turn" and not any(is_object(reply.text) for reply in recorded.replies):
            assert (await made_of(recorded)).taken == 0, recorded.replies


def is_object(text: str) -> bool:
    """Whether the text is one JSON object, bare or in a code block."""
    bare = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        return isinstance(json.loads(bare), dict)
    except ValueError:
        return False
