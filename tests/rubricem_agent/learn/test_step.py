"""The parts of a step that both trainers share: lessons, credit, the record's groups, and the log's line."""

import asyncio

import numpy as np
import pytest

from rubricem_agent.learn.credit import CreditSettings
from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.learn.step import (
    CreditedGroup,
    collect_reflections,
    credit_groups,
    credit_rollouts,
    describe_groups,
    measure_lessons,
    record_groups,
    retrieve_lessons,
)
from rubricem_agent.memory.bank import RetrievalSettings, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import NO_LESSONS, Injector
from rubricem_agent.memory.probation import ProbationSettings
from rubricem_agent.memory.store import MemoryStore
from rubricem_agent.policy.base import Opening
from rubricem_agent.reflection.reflector import ReflectionOutcome
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Origin, Query, Segment, Trajectory
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import query_of
from rubricem_records.files.packed_lines import read_packed
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_records.runs.log_lines import parse_line
from tests.fakes import make_reflection

QUESTION = load_questions(shipped_questions_path())[0]
QUERY = query_of(QUESTION)


def rollout(answer: str, *, stage_ids: tuple[int, ...] = (-1, 0, 3), failure: str = "") -> Rollout:
    count = len(stage_ids)
    tokens = RolloutTokens(ids=(7,) * count, stage_ids=stage_ids, logprobs=(0.0,) * count, prompt_length=1)
    said = Segment(origin=Origin.POLICY, text=f"<answer>{answer}</answer>")
    trajectory = Trajectory(question=QUERY.question, segments=(said,))
    return Rollout(trajectory=trajectory, policy="p", tokens=tokens, failure=failure)


def judgement(*scores: float | None) -> GroupJudgement:
    """The same score at each stage; None is a rollout that the judge gave no score."""
    rollouts = []
    for score in scores:
        given = {} if score is None else {stage: StageScore(score=score) for stage in STAGES}
        rollouts.append(RolloutJudgement(judgement=Judgement.of(given)))
    return GroupJudgement(query_key=QUERY.key, step=1, fingerprint="f", rubrics=(), rollouts=tuple(rollouts))


def credited(
    rollouts: list[Rollout], judged: GroupJudgement, *, query: Query = QUERY, has_truth: bool = True
) -> CreditedGroup:
    credit = credit_rollouts([rollouts], [judged], settings=CreditSettings()).credit
    (group,) = credit_groups(
        [Group.of(query, [one.parsed for one in rollouts])],
        [rollouts],
        [judged],
        credit,
        encounter="new",
        buffer=RubricBuffer(),
        lessons={},
        truth={query.key: QUESTION} if has_truth else {},
    )
    return group


@pytest.fixture
def bank() -> RubricBank:
    bank = RubricBank.in_memory(HashingEmbedder())
    bank.write(make_reflection("How wide is another river?", rubrics="Names the season."))
    return bank


def offered(bank, **how):
    return retrieve_lessons(bank, "How wide is this river?", guided=range(4), seed=0, **how)


def test_a_new_question_is_offered_the_lessons_of_others(bank):
    lessons = offered(bank, encounter="new", on_miss="none")
    assert lessons.retrieval == "cross"
    assert [hit.item.reflection.rubrics for hit in lessons.items] == ["Names the season."]


@pytest.mark.parametrize(("on_miss", "retrieval", "count"), [("none", "within", 0), ("cross", "cross", 1)])
def test_a_repeat_without_its_own_lesson_gets_what_on_miss_says(bank, on_miss, retrieval, count):
    lessons = offered(bank, encounter="repeat", on_miss=on_miss)
    assert (lessons.retrieval, len(lessons.items)) == (retrieval, count)


def test_a_repeat_gets_its_own_lesson_alone(bank):
    bank.write(make_reflection("How wide is this river?", rubrics="Names the month."))
    lessons = offered(bank, encounter="repeat", on_miss="cross")
    assert [hit.item.reflection.rubrics for hit in lessons.items] == ["Names the month."]


@pytest.fixture
def trial_bank() -> RubricBank:
    embedder = HashingEmbedder()
    store = MemoryStore(embedder=embedder.name, dimension=embedder.dimension)
    bank = RubricBank(store, embedder, probation=ProbationSettings())
    bank.write(make_reflection("How wide is another river?", takeaways="Names the season."))
    bank.change(1, "active")
    bank.write(make_reflection("How wide is a third river?", takeaways="Names the month."))
    return bank


def test_half_of_the_guided_attempts_see_a_lesson_on_probation_beside_the_active_ones(trial_bank):
    guided = range(2, 8)
    lessons = retrieve_lessons(
        trial_bank, "How wide is this river?", encounter="new", on_miss="none", guided=guided, seed=4
    )
    blocks = lessons.blocks(Injector(count_tokens=len, budget=10_000), 8)
    seen = [[hit.item.id for hit in hits] for _, hits in blocks]
    assert blocks[:2] == [NO_LESSONS, NO_LESSONS]
    assert all(1 in hits for hits in seen[2:])
    assert sum(2 in hits for hits in seen) == 3
    for text, hits in blocks:
        assert ("Names the season." in text) == any(hit.item.id == 1 for hit in hits)
        assert ("Names the month." in text) == any(hit.item.id == 2 for hit in hits)


def test_a_lesson_that_does_not_fit_into_the_block_counts_as_unseen(trial_bank):
    lessons = retrieve_lessons(
        trial_bank, "How wide is this river?", encounter="new", on_miss="none", guided=range(4), seed=4
    )
    blocks = lessons.blocks(Injector(count_tokens=lambda text: text.count("###"), budget=2), 4)
    assert all(len(hits) == 1 for _, hits in blocks)


def test_scores_of_a_group_reach_the_lessons_that_its_attempts_saw(trial_bank):
    hit = trial_bank.retrieve_on_probation("How wide is this river?", "cross")[0]
    seen = [[hit], [hit], [], []]
    measure_lessons(trial_bank, "How wide is this river?", judgement(0.2, None, 0.9, 0.9), seen, step=3)
    effect = trial_bank.item(hit.item.id).effect
    # The attempt without a score says nothing.
    assert (effect.shown, effect.unshown) == (1, 2)
    assert effect.gain == pytest.approx(-0.7 * 2 / 3)


def test_a_rollout_whose_scores_are_not_valid_says_nothing_of_the_lessons(trial_bank):
    hit = trial_bank.retrieve_on_probation("How wide is this river?", "cross")[0]
    failed = Unscored(reason="judge_failed")
    partly = Judgement.of({stage: failed for stage in STAGES} | {STAGES[0]: StageScore(score=0.2)})
    judged = judgement(0.9, 0.9)
    judged = judged.model_copy(update={"rollouts": (RolloutJudgement(judgement=partly), *judged.rollouts)})
    assert not judged.rollouts[0].is_valid
    measure_lessons(trial_bank, "How wide is this river?", judged, [[hit], [], []], step=3)
    assert trial_bank.item(hit.item.id).effect.shown == 0


def test_lessons_grow_old_as_steps_are_measured():
    embedder = HashingEmbedder()
    store = MemoryStore(embedder=embedder.name, dimension=embedder.dimension)
    bank = RubricBank(store, embedder, settings=RetrievalSettings(max_age=3))
    bank.write(make_reflection("How wide is another river?", step=1))
    measure_lessons(bank, "How wide is this river?", judgement(0.5), [()], step=5)
    assert len(bank) == 0


def test_the_record_says_which_attempts_saw_a_lesson(trial_bank):
    hits = trial_bank.retrieve("How wide is this river?", "cross")
    rollouts = [rollout("a"), rollout("b"), rollout("c")]
    judged = judgement(1.0, 0.0, 0.5)
    (group,) = credit_groups(
        [Group.of(QUERY, [one.parsed for one in rollouts])],
        [rollouts],
        [judged],
        credit_rollouts([rollouts], [judged], settings=CreditSettings()).credit,
        encounter="new",
        buffer=RubricBuffer(),
        lessons={QUERY.key: [hits, (), hits]},
        truth={},
    )
    assert [(lesson.item, lesson.attempts) for lesson in group.group.lessons] == [(1, (0, 2))]


def test_every_token_of_the_policy_carries_the_advantage_of_its_stage():
    both = credit_rollouts([[rollout("a"), rollout("b")]], [judgement(1.0, 0.0)], settings=CreditSettings())
    assert np.allclose(both.token_advantages, [[0, 1, 1], [0, -1, -1]])


def test_groups_are_credited_each_by_itself():
    rollouts = [[rollout("a"), rollout("b")], [rollout("c"), rollout("d")]]
    both = credit_rollouts(rollouts, [judgement(1.0, 0.0), judgement(0.0, 1.0)], settings=CreditSettings())
    assert np.allclose(both.credit.advantages[:, 3], [1, -1, -1, 1])


def test_the_line_has_means_over_all_rollouts_of_a_step():
    line = describe_groups([credited([rollout("one two"), rollout("one two three four")], judgement(1.0, 0.5))])
    # Two and four words; each rollout has two tokens of the policy.
    assert line["rollout_stats"] == {"answer_words": 3.0, "repeated_calls": 0.0, "valid": 0.0, "policy_tokens": 4}
    assert line["judged"]["answer"] == 0.75
    assert set(line["true"]) == {str(stage) for stage in STAGES}
    assert line["spread"] == dict.fromkeys(("plan", "research", "review", "answer"), 1.0)
    assert (line["encounter"], line["lost"], line["trained_rollouts"], line["fallbacks"]) == ("new", 0, 2, 0)


def test_a_rollout_that_the_world_broke_is_counted_and_trains_nothing():
    rollouts = [rollout("a"), rollout("b"), rollout("c", failure="the engine is gone")]
    group = credited(rollouts, judgement(1.0, 0.0, 0.0))
    line = describe_groups([group])
    assert (line["lost"], line["trained_rollouts"]) == (1, 2)
    assert group.failures == ["", "", "the engine is gone"]


def test_a_rollout_is_left_out_for_what_broke_it_or_its_judgement():
    rollouts = [rollout("a"), rollout("b", failure="the engine is gone"), rollout("c"), rollout("d")]
    failed = Judgement.of(dict.fromkeys(STAGES, Unscored(reason="judge_failed")))
    silent, refused = (RolloutJudgement(judgement=failed, failure=why) for why in ("", "the judge is away"))
    judged = judgement(1.0)
    judged = judged.model_copy(update={"rollouts": (*judged.rollouts, silent, silent, refused)})
    expected = ["", "the engine is gone", "the judge gave no score", "the judge is away"]
    assert credited(rollouts, judged).failures == expected


def test_each_group_has_its_own_rows_of_the_credit():
    groups = [[rollout("a"), rollout("b")], [rollout("c"), rollout("d"), rollout("e")], [rollout("f"), rollout("g")]]
    judged = [judgement(0.5, 0.5), judgement(1.0, 0.0, 1.0), judgement(0.5, 0.5)]
    # In the second group, the research of the first rollout has no score, and the third rollout is broken.
    partly = judged[1].judgements[0].replaced({"research": Unscored(reason="judge_failed")})
    lost = judged[1].rollouts[0].model_copy(update={"judgement": partly})
    judged[1] = judged[1].model_copy(update={"rollouts": (lost, *judged[1].rollouts[1:])})
    groups[1][2] = rollout("e", failure="the engine is gone")
    credit = credit_rollouts(groups, judged, settings=CreditSettings()).credit
    queries = [
        QUERY,
        QUERY.model_copy(update={"question": "Another?"}),
        QUERY.model_copy(update={"question": "Third?"}),
    ]
    found = credit_groups(
        [Group.of(query, [one.parsed for one in group]) for query, group in zip(queries, groups, strict=True)],
        groups,
        judged,
        credit,
        encounter="new",
        buffer=RubricBuffer(),
        lessons={},
        truth={},
    )
    rows = [entry.advantages for group in found for entry in group.rollouts]
    assert np.allclose(rows, credit.advantages)
    assert [group.group.place for group in found] == [0, 1, 2]
    line = describe_groups(found)
    # One of three groups differs in a stage.
    assert line["spread"]["answer"] == 0.3333
    assert [group.fallbacks for group in found] == [0, 1, 0]
    assert line["fallbacks"] == 1


def test_a_question_without_truth_has_no_true_quality_and_its_line_can_be_read():
    line = describe_groups([credited([rollout("a"), rollout("b")], judgement(1.0, 0.0), has_truth=False)])
    assert line["true"] == {}
    assert parse_line({"step": 1, **line}).judged["answer"] == 0.5


def test_a_group_is_recorded_under_the_step_that_took_it(bank, tmp_path):
    recorder = RunRecorder(tmp_path)
    recorder.begin(0, embedder="hashing")
    group = credited([rollout("a"), rollout("b")], judgement(1.0, 0.0)).taken(5, 2)
    record_groups(recorder, [group], bank=bank, step=5)
    assert {(entry.step, entry.place) for entry in (group.group, *group.rollouts)} == {(5, 2)}
    assert len(list(read_packed(tmp_path / "rollouts.jsonl.gz"))) == 2
    # The bank's one item is in the record, and is not written again.
    assert recorder.bank_revision == 1
    record_groups(None, [group], bank=bank, step=5)


async def test_reflections_are_collected_one_step_late_with_the_reasons_of_failures():
    opening = Opening("s", "u")

    async def work(ticket: Ticket) -> ReflectionOutcome:
        if ticket.key == "b":
            raise ModelError("the model is away")
        fields = {"query_key": ticket.key, "step": ticket.step, "attempt": 0, "prompt_hash": "h", "temperature": 0.7}
        return ReflectionOutcome(**fields, opening=opening, samples=())

    reflections = Deferred(work, ReflectionOutcome)
    for key in "ab":
        reflections.launch(Ticket(1, key))
    await asyncio.wait_for(reflections.drain(), 5)
    assert collect_reflections(reflections, step=1, refused_rubrics={}).outcomes == []

    collected = collect_reflections(reflections, step=2, refused_rubrics={"too_long": 3})
    assert [outcome.query_key for outcome in collected.outcomes] == ["a"]
    assert collected.line["staleness"] == [1]
    assert collected.line["failed_reflections"] == ["the reflection of step 1 on 'b': the model is away"]
    assert collected.line["refused"]["rubrics"] == {"too_long": 3}
    assert collected.line["pending_reflections"] == 0
