"""The judge over a chat model: whole replies, broken ones, and none."""

import itertools
import json

import numpy as np
import pytest

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_env.llm.chat import ChatReply
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, attempt, careless
from tests.fakes import ScriptedModel, rubric
from tests.replies import empty_proposal, read_blocks, read_fenced

READING = parse_trajectory(attempt())
ANSWERS = tuple(rubric(text) for text in ("a", "b"))
MIXED = (rubric("p", Stage.PLAN), *ANSWERS)


class FakeTime:
    def __init__(self):
        self.now, self.waits = 0.0, []

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def judge_over(script, time=None):
    time = time or FakeTime()
    model = ScriptedModel(script)
    timing = Timing(lambda: time.now, time.sleep, np.random.default_rng(0))
    settings = AskSettings(retry=RetryPolicy(), fallback_retry=RetryPolicy(attempts=2))
    return LLMJudge(model, settings=settings, timing=timing), model


def scores(*rows):
    entries = [f'{{"index": {index}, "justification": "j{index}", "score": {score}}}' for index, score in rows]
    return f'{{"scores": [{", ".join(entries)}]}}'


async def ask_scores(script, rubrics=ANSWERS):
    judge, model = judge_over(script)
    found = await judge.score(ScoringRequest(QUESTION, READING, rubrics))
    by_index = sorted(rubrics, key=lambda r: (STAGES.index(r.stage), r.id))
    return (
        {place: found.rubric_scores[r.id].score for place, r in enumerate(by_index, 1) if r.id in found.rubric_scores},
        found,
        model,
    )


async def test_a_whole_reply_is_taken_at_its_first_word():
    found, result, model = await ask_scores([scores((1, 2), (2, 0))])
    assert (found, result.failure, len(model.requests)) == ({1: 2, 2: 0}, "", 1)


@pytest.mark.parametrize("bad", ["1.0", "true", "NaN", "Infinity", '"2"', "3", "-1", "null", "1e0"])
async def test_a_score_that_is_no_whole_number_is_asked_for_again_by_its_index(bad):
    found, _, model = await ask_scores([scores((1, 2), (2, bad)), scores((2, 1))])
    assert found == {1: 2, 2: 1}
    assert "Missing or unusable: 2." in model.requests[1].prompt


async def test_where_a_criterion_stays_without_a_score_after_the_repair_none_has_one():
    found, result, _ = await ask_scores(lambda _: scores((1, 2)))
    assert found == {}
    assert result.failure.startswith("1 of 2 criteria came back without a usable score")


async def test_an_index_given_twice_counts_as_not_given():
    found, _, _ = await ask_scores([scores((1, 2), (1, 0), (2, 1)), scores((1, 1))])
    assert found == {1: 1, 2: 1}


async def test_a_reply_with_an_index_that_was_not_asked_for_is_asked_again_whole():
    found, _, model = await ask_scores([scores((1, 2), (2, 2), (9, 2)), scores((1, 0), (2, 1))])
    assert found == {1: 0, 2: 1}
    assert "the index 9, which was not asked for" in model.requests[1].prompt


@pytest.mark.parametrize(
    "rubbish", ["I think they are good.", "[]", "null", '{"scores": "all 2"}', '{"scores": [1, "2"]}']
)
async def test_rubbish_is_asked_again_with_what_was_wrong(rubbish):
    found, _, model = await ask_scores([rubbish, scores((1, 0), (2, 0))])
    assert found == {1: 0, 2: 0}
    assert "could not be used" in model.requests[1].prompt


async def test_a_judge_whose_replies_cannot_be_read_says_how_many_and_why():
    _, result, model = await ask_scores(lambda _: "I like the first.", MIXED)
    full, alone = result.failure.split("; then, for the answer alone: ")
    assert full.startswith("6 replies could not be used, the last one: the reply is not valid JSON")
    assert alone.startswith("2 replies could not be used, the last one: ")
    assert len({request.prompt for request in model.requests}) == 6 + 2


async def test_a_truncated_reply_is_reported_to_the_model():
    cut = ChatReply(text=scores((1, 2), (2, 2))[:-20], model="m", finish="length")
    _, _, model = await ask_scores([cut, scores((1, 0), (2, 0))])
    assert "truncated at the token limit" in model.requests[1].prompt


async def test_after_five_retries_the_answer_alone_is_asked_for():
    down = [ModelError("503", is_retryable=True)] * 6
    found, result, model = await ask_scores([*down, scores((1, 2), (2, 0))], MIXED)
    assert result.is_answer_only
    assert len(found) == 2
    assert len(model.requests) == 7
    assert read_blocks(model.requests[6].prompt)["TRAJECTORY"] == {"left_out": "only the answer is to be scored"}


async def test_a_judge_that_is_down_for_ten_minutes_gives_no_score_and_says_why():
    time = FakeTime()
    judge, model = judge_over(lambda _: ModelError("connection refused", is_retryable=True, retry_after=90.0), time)
    found = await judge.score(ScoringRequest(QUESTION, READING, MIXED))
    assert found.rubric_scores == {}
    assert "connection refused" in found.failure
    assert 500 < time.now < 700
    assert len(model.requests) == 6 + 2


async def test_a_refused_request_is_not_repeated():
    _, result, model = await ask_scores([ModelError("401")])
    assert (len(model.requests), result.failure) == (1, "401")


async def test_where_gaps_remain_the_answer_alone_is_asked_for():
    found, result, model = await ask_scores([scores((2, 2), (3, 1)), scores((2, 2)), scores((1, 0), (2, 1))], MIXED)
    assert result.is_answer_only
    assert (set(found), len(model.requests)) == ({2, 3}, 3)


async def test_nothing_is_asked_where_there_is_nothing_to_score():
    _, _, model = await ask_scores([], ())
    assert model.requests == []


def proposal(**stages):
    lists = {}
    for stage, rows in stages.items():
        lists[stage] = {"positive_rubrics": rows, "negative_rubrics": []}
    return json.dumps({**empty_proposal(), **lists})


def row(title="t", description="Compares both widths at the same season", weight=2):
    return {"title": title, "description": description, "weight": weight}


async def propose(script, known=None):
    judge, model = judge_over(script)
    trajectories = (READING, parse_trajectory(careless()))
    return await judge.propose(Contrast(QUESTION, trajectories, known or RubricSet(), step=5, seed=3)), model


async def test_proposals_carry_stage_polarity_weight_and_provenance():
    found, _ = await propose([proposal(stage_3=[row()])])
    (only,) = found.rubrics
    assert (only.stage, only.polarity, only.weight, only.persistent) == (Stage.REVIEW, "positive", 2.0, False)
    assert (only.provenance.step, only.provenance.model, len(only.provenance.prompt_hash)) == (5, "scripted", 16)


async def test_weights_out_of_range_are_refused_and_counted():
    found, _ = await propose([proposal(stage_1=[row(weight=9), row("u", "Other thing entirely", weight=0)])])
    assert (found.rubrics, len(found.refused)) == ((), 2)


@pytest.mark.parametrize("weight", ["NaN", True, None, "2", float("inf"), 10**400])
async def test_a_weight_that_is_no_number_refuses_the_rubric_alone(weight):
    text = proposal(stage_1=[row(weight=weight), row("u", "Other thing entirely")])
    found, _ = await propose([text])
    assert [r.title for r in found.rubrics] == ["u"]


async def test_more_than_six_rubrics_of_a_stage_are_cut():
    found, _ = await propose([proposal(stage_4=[row(str(n), f"Thing number {n} of the rivers") for n in range(9)])])
    assert (len(found.rubrics), len(found.refused)) == (6, 3)


async def test_a_proposal_that_cannot_be_had_is_a_failure_and_not_an_empty_wish():
    found, _ = await propose([ModelError("no")] * 9)
    assert (found.rubrics, bool(found.failure)) == ((), True)


async def test_the_group_is_anonymous_shuffled_by_seed_and_shown_what_exists():
    known = RubricSet().with_persistent([rubric("given", persistent=True)]).with_proposed([rubric("used")], step=1)
    _, model = await propose([proposal()], known)
    blocks = read_blocks(model.requests[0].prompt)
    assert [attempt["attempt"] for attempt in blocks["ATTEMPTS"]] == ["T1", "T2"]
    assert blocks["EXISTING"]["persistent"][0]["title"] == "given"
    assert blocks["EXISTING"]["active"][0]["title"] == "used"
    _, again = await propose([proposal()], known)
    assert again.requests[0].prompt == model.requests[0].prompt


@pytest.mark.parametrize(
    ("description", "polarity", "requires_quote", "needed"),
    [
        ("States both widths.", "positive", True, True),
        ("States both widths.", "positive", False, False),
        ("Avoids figures for other rivers.", "positive", True, False),
        ("The answer does not overstate the survey.", "positive", True, False),
        ("Makes no claim about depth.", "positive", True, False),
        ("Claims a depth that no source gives.", "negative", True, False),
        ("Notes that the survey gives no depth.", "positive", True, True),
    ],
)
async def test_a_quotation_is_required_for_what_should_be_there(description, polarity, requires_quote, needed):
    model = ScriptedModel(read_fenced(lambda criterion, blocks: 1))
    own = rubric(description).model_copy(update={"polarity": polarity, "title": "t"})
    judge = LLMJudge(model, settings=AskSettings(requires_quote=requires_quote))
    await judge.score(ScoringRequest(QUESTION, parse_trajectory(attempt()), (own,)))
    (criterion,) = read_blocks(model.requests[0].prompt)["CRITERIA"]
    assert criterion["needs_quote"] is needed


async def test_retired_criteria_are_shown_whole_so_that_they_may_come_back_in_their_own_words():
    gone = rubric("States both widths.")
    known = (
        RubricSet()
        .with_proposed([gone], step=1)
        .pruned({gone.id: [1.0, 1.0]}, caps=DEEP_RESEARCH.caps, step=1, archive_limit=9)
    )
    assert known.rubrics == ()
    reply = {
        **empty_proposal(),
        "stage_4": {
            "positive_rubrics": [{"title": gone.title, "description": gone.description, "weight": 1}],
            "negative_rubrics": [],
        },
    }
    model = ScriptedModel(read_fenced(lambda criterion, blocks: 1, draft=lambda _: reply))
    trajectories = (parse_trajectory(attempt()), parse_trajectory(careless()))
    found = await LLMJudge(model).propose(Contrast(QUESTION, trajectories, known=known, step=2))
    (shown,) = read_blocks(model.requests[0].prompt)["EXISTING"]["retired"]
    assert shown["description"] == gone.description
    back = known.with_proposed(found.rubrics, step=2)
    assert ([one.id for one in back.rubrics], back.archive) == ([gone.id], ())


def reads(purposes):
    """Proposes two criteria and gives those whose text holds a word its purpose; None is no reply."""
    proposed = proposal(stage_4=[row("First", "Names both rivers"), row("Second", "Names SomniVale Drops first")])

    def reply(request):
        if request.purpose != "admit":
            return proposed
        rows = read_blocks(request.prompt)["TEXTS"]
        found = {row["index"]: next((p for word, p in purposes.items() if word in row["text"]), None) for row in rows}
        entries = [{"index": at, "justification": "why", "purpose": p} for at, p in found.items() if p]
        return json.dumps({"scores": entries})

    return reply


@pytest.mark.parametrize(
    ("purposes", "kept", "why"),
    [
        ({"rivers": "research", "SomniVale": "promotion"}, ["First"], "its purpose is promotion: why"),
        ({"rivers": "research", "SomniVale": "research"}, ["First", "Second"], None),
        ({"rivers": "research"}, [], "it was not read: "),
        ({"rivers": "research", "SomniVale": "excellent"}, [], "it was not read: "),
    ],
)
async def test_the_second_reader_admits_what_describes_research_and_nothing_that_it_does_not_answer_for(
    purposes, kept, why
):
    model = ScriptedModel(reads(purposes))
    settings = AskSettings(second_reader=True, fallback_retry=RetryPolicy(attempts=1))
    found = await LLMJudge(model, settings=settings).propose(
        Contrast(QUESTION, (READING, READING), RubricSet(), step=1)
    )
    assert [rubric.title for rubric in found.rubrics] == kept
    assert not found.failure
    refused = [line for line in found.refused if line.startswith("second_reader: rubric 'Second': ")]
    assert (len(refused) == 1 and why in refused[0]) if why else not refused


async def test_the_scoring_prompts_of_a_group_share_all_that_stands_before_the_attempt():
    judge, model = judge_over(lambda _: scores((1, 2), (2, 0), (3, 1)))
    for number in (1, 2):
        parsed = parse_trajectory(attempt(page=f"Page {number}."))
        await judge.score(ScoringRequest(QUESTION, parsed, MIXED, seed=number))
    first, second = (request.system + request.prompt for request in model.requests)
    shared = "".join(
        a for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )
    assert all(f"<<<END {label}" in shared for label in ("QUESTION", "CRITERIA"))
    assert "<<<END TRAJECTORY" not in shared
