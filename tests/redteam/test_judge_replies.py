"""A reply of the training judge is all scores that were asked for, or none; a failed reply trains nobody."""

import json

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Unscored
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.replies import WireScore, read_entries
from rubricem_env.judge.reflections import ReflectionTask
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.llm.chat import ChatReply
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, attempt, careless
from tests.fakes import ScriptedModel, rubric
from tests.replies import empty_proposal

READING = parse_trajectory(attempt())
RUBRICS = (rubric("p", Stage.PLAN), rubric("q", Stage.PLAN), *(rubric(text) for text in "abcd"))
ONCE = RetryPolicy(attempts=2, initial_delay=0.001)
SETTINGS = AskSettings(retry=ONCE, fallback_retry=ONCE)


def row(index: object, score: object = 2, why: object = "It says 60 m.", **others: object) -> dict[str, object]:
    return {"index": index, "justification": why, "score": score, **others}


def rows(*indices: object, **fields: object) -> list[dict[str, object]]:
    return [row(index, **fields) for index in indices]


def dump(entries: object, **others: object) -> str:
    return json.dumps({"scores": entries, **others})


WHOLE = (1, 2, 3, 4, 5, 6)
REPLIES = {
    "indices from 0": dump(rows(0, 1, 2, 3, 4, 5)),
    "shifted by one": dump(rows(2, 3, 4, 5, 6, 7)),
    "one more index": dump(rows(*WHOLE, 7)),
    "negative indices": dump(rows(-1, -2, -3, -4, -5, -6)),
    "indices as texts": dump(rows(*map(str, WHOLE))),
    "indices as fractions": dump(rows(*map(float, WHOLE))),
    "indices as booleans": dump(rows(True, 2, 3, 4, 5, 6)),
    "half of the criteria": dump(rows(1, 3, 5)),
    "one stage alone": dump(rows(3, 4, 5, 6)),
    "an index twice": dump([*rows(*WHOLE), row(1, 0)]),
    "the same entry twice": dump([*rows(*WHOLE), row(1)]),
    "keys twice": dump(rows(*WHOLE)).replace('"score": 2}', '"score": 0, "score": 2}', 1),
    "scores twice": dump(rows(*WHOLE)).replace('"scores"', '"scores": [], "scores"', 1),
    "an error beside scores": dump(rows(*WHOLE), error="overloaded"),
    "a null error beside scores": dump(rows(*WHOLE), error=None),
    "a refusal beside scores": dump(rows(*WHOLE, score=0), refusal="I cannot score this."),
    "an error in an entry": dump(rows(*WHOLE, error="overloaded")),
    "empty reasons": dump(rows(*WHOLE, why="")),
    "blank reasons": dump(rows(*WHOLE, why=" \u200b\n")),
    "reasons of marks": dump(rows(*WHOLE, why="...")),
    "no reasons": dump([{"index": index, "score": 2} for index in WHOLE]),
    "reasons that are null": dump(rows(*WHOLE, why=None)),
    "a refusal with zeros": dump(rows(*WHOLE, score=0, why="I'm sorry, but I can't help with that.")),
    "a refusal in other words": dump([row(at, 0, f"Unable to evaluate criterion {at}.") for at in WHOLE]),
    "a refusal in another language": dump(rows(*WHOLE, score=0, why="Das kann ich nicht bewerten.")),
    "an error as the reason": dump(rows(*WHOLE, why="Internal server error")),
    "scores out of range": dump(rows(*WHOLE, score=3)),
    "scores as fractions": dump(rows(*WHOLE, score=1.0)),
    "a list": json.dumps(rows(*WHOLE)),
    "by index": json.dumps({str(index): 2 for index in WHOLE}),
    "two objects": dump(rows(*WHOLE)) * 2,
    "prose before": f"Here they are: {dump(rows(*WHOLE))}",
    "cut by the limit": ChatReply(text=dump(rows(*WHOLE)), model="m", finish="length"),
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
async def test_an_ambiguous_or_failed_reply_gives_no_score_to_any_stage(reply):
    model = ScriptedModel(lambda _: reply)

    found = await LLMJudge(model, settings=SETTINGS).score(ScoringRequest(QUESTION, READING, RUBRICS))

    judgement = score_trajectory((Stage.PLAN, Stage.ANSWER), RUBRICS, rubric_scores=found.rubric_scores)
    assert isinstance(judgement.outcome("plan"), Unscored)
    # The reduced call asks for the four criteria of the answer: a reply to six of them is none to four.
    assert isinstance(judgement.outcome("answer"), Unscored)
    assert found.failure
    assert len(model.requests) > 2


async def test_the_whole_set_is_scored_at_once():
    model = ScriptedModel([dump(rows(*WHOLE))])

    found = await LLMJudge(model, settings=SETTINGS).score(ScoringRequest(QUESTION, READING, RUBRICS))

    assert (len(found.rubric_scores), found.failure) == (6, "")


@pytest.mark.parametrize(
    "reason",
    [
        "An error in the width: it says 70 m where the page says 60 m.",
        "I cannot find a quotation of the season.",
        "I do not see a second source.",
        "Decline of the population is stated.",
        "Errors of the survey are named.",
        "\u6ca1\u6709\u5f15\u7528\u3002",
    ],
)
def test_an_honest_reason_is_one(reason):
    assert read_entries({"scores": [row(1, 0, reason)]}, WireScore, asked=(1,))[1].score == 0


@pytest.mark.parametrize("zeros", [[row(1, 0)], [row(1, 0), row(2, 0, "It names no season.")], rows(1, 2, score=1)])
def test_a_zero_alone_zeros_with_reasons_and_other_scores_with_one_reason_are_scores(zeros):
    found = read_entries({"scores": zeros}, WireScore, asked=(1, 2))
    assert [entry.score for entry in found.values()] == [each["score"] for each in zeros]


def test_two_zeros_with_one_reason_are_a_refusal():
    with pytest.raises(ModelError, match="every criterion a zero for one and the same reason"):
        read_entries({"scores": rows(1, 2, score=0)}, WireScore, asked=(1, 2))


def test_the_entries_around_an_unusable_one_are_read():
    entries = [row(1), row(2, 7), row(3)]
    assert list(read_entries({"scores": entries}, WireScore, asked=(1, 2, 3))) == [1, 3]


DIMENSIONS = {"diagnostic_accuracy": 0.5, "specificity": 0.5, "scope_and_balance": 0.5}


def reflection(index: object, why: str = "It names the season.", **changes: object) -> dict[str, object]:
    return {"index": index, "justification": why, **DIMENSIONS, **changes}


@pytest.mark.parametrize(
    "entries",
    [
        [reflection(0), reflection(1)],
        [reflection(1)],
        [reflection(1), reflection(2), reflection(3)],
        [reflection(1), reflection(1), reflection(2)],
        [reflection(1, why=""), reflection(2)],
        [reflection(1, error="x"), reflection(2)],
        [reflection(1, specificity=1.5), reflection(2)],
        [reflection(1, specificity=True), reflection(2)],
        [reflection(1, why="I cannot judge this."), reflection(2)],
    ],
)
async def test_reflections_are_scored_all_or_none(entries):
    judgement = score_trajectory((), (), rubric_scores={})
    task = ReflectionTask(QUESTION, READING, judgement, (), ("one lesson", "another lesson"))

    scored = await LLMJudge(ScriptedModel(lambda _: dump(entries)), settings=SETTINGS).judge_reflections(task)

    assert all(isinstance(candidate.outcome, Unscored) for candidate in scored)


STAGE = {"positive_rubrics": [], "negative_rubrics": []}


@pytest.mark.parametrize(
    "reply",
    [
        {**empty_proposal(), "error": "overloaded"},
        {"error": "overloaded"},
        {"stage_1": STAGE},
        {**empty_proposal(), "stage_5": STAGE},
        {f"stage_{number}": STAGE for number in range(4)},
        {**empty_proposal(), "stage_2": []},
        {**empty_proposal(), "stage_2": {"positive_rubrics": []}},
        {**empty_proposal(), "stage_2": {**STAGE, "error": "x"}},
        {**empty_proposal(), "stage_2": {**STAGE, "positive_rubrics": "none"}},
    ],
)
async def test_a_proposal_of_another_form_is_a_failure_and_proposes_nothing(reply):
    contrast = Contrast(QUESTION, (READING, parse_trajectory(careless())))
    model = ScriptedModel(lambda _: json.dumps(reply))

    proposal = await LLMJudge(model, settings=SETTINGS).propose(contrast)

    assert (proposal.rubrics, bool(proposal.failure), len(model.requests)) == ((), True, 2)


@pytest.mark.parametrize("weight", [100, 0, -1, 2.5, True, "2", None])
async def test_a_proposed_weight_out_of_its_range_refuses_that_rubric(weight):
    fair = {"title": "u", "description": "States both widths and the season", "weight": 2}
    lists = {"positive_rubrics": [fair, {**fair, "title": "t", "weight": weight}], "negative_rubrics": []}
    model = ScriptedModel(lambda _: json.dumps({**empty_proposal(), "stage_4": lists}))

    proposal = await LLMJudge(model, settings=SETTINGS).propose(
        Contrast(QUESTION, (READING, parse_trajectory(careless())))
    )

    assert [kept.title for kept in proposal.rubrics] == ["u"]
    assert len(proposal.refused) == 1


def test_an_unusable_reply_says_what_was_wrong_with_it():
    with pytest.raises(ModelError, match="the index 0, which was not asked for"):
        read_entries({"scores": rows(0, 1)}, WireScore, asked=(1, 2))
