"""From a judged group to the bank: which attempt, which candidate, what is trained on, what fails alone."""

from collections import Counter

import numpy as np
import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.policy.base import Emission, TokenSegment
from rubricem_agent.reflection.candidates import ReflectionError, ReflectionSettings, check_trainable
from rubricem_agent.reflection.reflector import (
    JudgedAttempt,
    ReflectionOutcome,
    Reflector,
    draw_attempt,
    measure_reflections,
)
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Judgement, Unscored
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.trajectory import Ending, Origin, Segment, Trajectory
from rubricem_env.judge.reflections import CandidateScore
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.bank.bank_items import BankItem

QUESTION = "How wide is the Tall Fox?"
PAGE = "the width of the tall fox was measured at low water by the river board"
SETTINGS = ReflectionSettings(num_candidates=3)


def written(rubrics="States the width.", takeaways="Look for the convention."):
    return f"<reflection_rubrics>{rubrics}</reflection_rubrics><reflection_takeaways>{takeaways}</reflection_takeaways>"


def attempt(answer="60 m", ending=Ending.ANSWERED):
    segments = (
        Segment(origin=Origin.TOOL, text=PAGE),
        Segment(origin=Origin.POLICY, text=f"<think>t</think><answer>{answer}</answer>"),
    )
    parsed = parse_trajectory(Trajectory(question=QUESTION, segments=segments, ending=ending))
    return JudgedAttempt(parsed, Judgement.of({}))


class Writer:
    """A policy that writes the texts in turn, over and over, and remembers its requests; without texts it fails."""

    name = "writer"

    def __init__(self, *texts):
        self.texts = texts
        self.asked = []
        self.closed = 0

    def count_tokens(self, text):
        return len(text) // 4

    def open(self, opening, *, sampling, seed):
        self.asked.append((opening, sampling, seed))
        return Draft(self, self.texts[(len(self.asked) - 1) % len(self.texts)] if self.texts else None)

    @property
    def seeds(self):
        return [seed for _, _, seed in self.asked]


class Draft:
    pieces = (TokenSegment(ids=(1, 2)), TokenSegment(ids=(3,), logprobs=(-0.5,), starts=(0,)))

    def __init__(self, writer, text):
        self.writer = writer
        self.text = text

    async def emit(self, *, max_tokens, listener):
        if self.text is None:
            raise ModelError("the policy is down")
        return Emission(self.text, "stopped")

    def close(self):
        self.writer.closed += 1


class Marker:
    """Gives each candidate the utility that stands for it, or none."""

    def __init__(self, **utilities):
        self.utilities = utilities
        self.tasks = []

    async def judge_reflections(self, task):
        self.tasks.append(task)
        return tuple(CandidateScore(self._score(text)) for text in task.candidates)

    def _score(self, text):
        for word, utility in self.utilities.items():
            if word in text:
                # Three equal dimensions combine to themselves: 0.4 u + 0.3 u + 0.3 u = u.
                return ReflectionScore(diagnosis=utility, specificity=utility, scope=utility)
        return Unscored(reason="judge_failed")


@pytest.fixture
def bank():
    return RubricBank.in_memory(HashingEmbedder())


async def test_the_best_candidate_goes_to_the_bank_with_its_origin_and_all_are_returned(bank):
    writer = Writer(written("poor"), written("good"), written("fair"))
    outcome = await Reflector(writer, Marker(poor=0.1, good=0.9, fair=0.5), bank, settings=SETTINGS).reflect(
        [attempt()], step=7
    )
    (hit,) = bank.retrieve(QUESTION, "within")
    assert hit.item.reflection.rubrics == "good"
    provenance = hit.item.reflection.provenance
    assert (provenance.step, provenance.model, provenance.prompt_hash) == (7, "writer", outcome.prompt_hash)
    assert outcome.chosen == 1
    assert [sample.score.utility for sample in outcome.scored if sample.score] == pytest.approx([0.1, 0.9, 0.5])
    assert [sample.pieces for sample in outcome.samples] == [Draft.pieces] * 3
    assert writer.closed == 3


async def test_a_tie_goes_to_the_shorter_and_then_to_the_earlier(bank):
    writer = Writer(written("same and longer"), written("same"), written("same"))
    outcome = await Reflector(writer, Marker(same=0.5), bank, settings=SETTINGS).reflect([attempt()], step=1)
    assert outcome.chosen == 1


async def test_a_candidate_of_unsound_form_is_trained_on_and_never_kept(bank):
    writer = Writer("best advice without blocks", written("fair"), written("poor"))
    outcome = await Reflector(writer, Marker(best=1.0, fair=0.5, poor=0.1), bank, settings=SETTINGS).reflect(
        [attempt()], step=1
    )
    assert outcome.chosen == 1
    assert outcome.samples[0].score is not None
    assert outcome.samples[0].refusal.startswith("format: <reflection_rubrics> is missing")


async def test_where_form_counts_a_candidate_of_unsound_form_earns_nothing(bank):
    writer = Writer("best advice without blocks", written("fair"), written("poor"))
    settings = ReflectionSettings(num_candidates=3, form_counts=True)
    outcome = await Reflector(writer, Marker(best=1.0, fair=0.5, poor=0.1), bank, settings=settings).reflect(
        [attempt()], step=1
    )
    assert [sample.score.utility for sample in outcome.samples if sample.score] == pytest.approx([0.0, 0.5, 0.1])
    assert [sample.is_readable for sample in outcome.samples] == [False, True, True]


async def test_a_candidate_that_the_gate_refuses_makes_way_for_the_next_best(bank):
    writer = Writer(written("best: see www.evil.example"), written("fair"), written(f"good: {PAGE}"))
    outcome = await Reflector(writer, Marker(best=1.0, good=0.8, fair=0.5), bank, settings=SETTINGS).reflect(
        [attempt()], step=1
    )
    assert outcome.chosen == 1
    assert [sample.refusal.partition(":")[0] for sample in outcome.samples] == ["address", "", "copied"]


async def test_a_candidate_without_its_last_tag_earns_the_share_of_its_form_or_is_repaired(bank):
    broken = written("best").removesuffix("</reflection_takeaways>")
    for changes, utilities, chosen in (
        ({"form_counts": "share"}, [0.6, 0.5], 1),  # three of four tags of a utility of 0.8
        ({"repairs_form": True}, [0.8, 0.5], 0),
    ):
        settings = ReflectionSettings(num_candidates=2, **changes)
        outcome = await Reflector(
            Writer(broken, written("fair")), Marker(best=0.8, fair=0.5), bank, settings=settings
        ).reflect([attempt()], step=1)
        assert [sample.score.utility for sample in outcome.samples if sample.score] == pytest.approx(utilities)
        assert outcome.chosen == chosen


@pytest.mark.parametrize(("gate_counts", "utilities"), [(True, [0.0, 0.5, 0.0]), (False, [1.0, 0.5, 0.2])])
async def test_a_candidate_that_the_gate_refuses_earns_nothing_whether_or_not_a_better_one_was_kept(
    bank, gate_counts, utilities
):
    # The third is worse than the one that is kept, and is shown to the gate all the same.
    writer = Writer(written("best: see www.evil.example"), written("fair"), written(f"poor: {PAGE}"))
    settings = ReflectionSettings(num_candidates=3, gate_counts=gate_counts)
    outcome = await Reflector(writer, Marker(best=1.0, fair=0.5, poor=0.2), bank, settings=settings).reflect(
        [attempt()], step=1
    )
    assert [sample.score.utility for sample in outcome.samples if sample.score] == pytest.approx(utilities)
    line = measure_reflections([outcome], {})
    assert line["refused"]["reflections"] == {"address": 1, "copied": 1}
    assert line["utility"] == round(sum(utilities) / 3, 4)
    assert len(bank) == 1


async def test_an_empty_candidate_scores_0_without_the_judge_seeing_it(bank):
    marker = Marker(fair=0.5)
    outcome = await Reflector(Writer("  ", written("fair"), ""), marker, bank, settings=SETTINGS).reflect(
        [attempt()], step=1
    )
    assert [len(task.candidates) for task in marker.tasks] == [1]
    assert [sample.score.utility for sample in outcome.samples if sample.score] == [0.0, 0.5, 0.0]


async def test_the_judge_is_not_called_where_every_candidate_is_empty(bank):
    marker = Marker()
    outcome = await Reflector(Writer(""), marker, bank, settings=SETTINGS).reflect([attempt()], step=1)
    assert marker.tasks == []
    assert outcome.item is None


async def test_an_unscored_candidate_is_neither_kept_nor_trained_on(bank):
    writer = Writer(written("unheard"), written("poor"), written("unheard"))
    outcome = await Reflector(writer, Marker(poor=0.1), bank, settings=SETTINGS).reflect([attempt()], step=1)
    assert outcome.chosen == 1
    assert [sample.text for sample in outcome.scored] == [written("poor")]


async def test_eight_candidates_are_drawn_at_temperature_0_7_of_at_most_2_048_tokens(bank):
    writer = Writer(written())
    await Reflector(writer, Marker(), bank).reflect([attempt()], step=1)
    _, sampling, _ = writer.asked[0]
    assert (sampling.temperature, sampling.max_turn_tokens, len(set(writer.seeds))) == (0.7, 2_048, 8)


async def test_a_late_reflection_on_an_earlier_attempt_does_not_take_the_place_of_a_newer_one(bank):
    reflector = Reflector(Writer(written()), Marker(States=0.5), bank, settings=SETTINGS)
    newer = await reflector.reflect([attempt()], step=7)
    late = await reflector.reflect([attempt()], step=1)
    assert bank.retrieve(QUESTION, "within")[0].item == newer.item
    assert newer.item is not None
    assert newer.item.status == "active"
    assert late.item is not None
    assert late.item.status == "superseded"
    newest = await reflector.reflect([attempt()], step=8)
    assert bank.retrieve(QUESTION, "within")[0].item == newest.item


async def test_an_outcome_says_which_weights_drew_it(bank):
    seen = [4]

    class Trained(Marker):
        async def judge_reflections(self, task):
            seen[0] = 5
            return await super().judge_reflections(task)

    writer = Writer(written())
    reflector = Reflector(writer, Trained(States=0.5), bank, settings=SETTINGS, version=lambda: seen[0])
    assert (await reflector.reflect([attempt()], step=1)).policy_version == 4
    unknown = await Reflector(writer, Marker(), bank, settings=SETTINGS).reflect([attempt()], step=1)
    assert unknown.policy_version is None


async def test_a_seed_that_nobody_gave_draws_as_0_does_and_another_seed_otherwise(bank):
    writer = Writer(written())
    for seed in (None, 0, 7):
        settings = SETTINGS.model_copy(update={"seed": seed})
        await Reflector(writer, Marker(), bank, settings=settings).reflect([attempt()], step=1)
    assert writer.seeds[:3] == writer.seeds[3:6] != writer.seeds[6:]


async def test_the_same_step_and_question_draw_the_same_again_and_another_step_does_not(bank):
    writer = Writer(written())
    group = [attempt(answer=str(number)) for number in range(8)]
    reflector = Reflector(writer, Marker(), bank, settings=SETTINGS)
    outcomes = [await reflector.reflect(group, step=step) for step in (3, 3, 4)]
    assert outcomes[0].attempt == outcomes[1].attempt
    assert writer.asked[:3] == writer.asked[3:6]
    assert writer.seeds[:3] != writer.seeds[6:]


async def test_a_long_attempt_is_shortened_to_what_the_prompt_may_hold(bank):
    writer = Writer(written())
    long = Segment(origin=Origin.TOOL, text="x" * 400_000)
    trajectory = attempt().parsed.trajectory
    parsed = parse_trajectory(trajectory.model_copy(update={"segments": (long, *trajectory.segments)}))
    await Reflector(writer, Marker(), bank, settings=SETTINGS).reflect(
        [JudgedAttempt(parsed, Judgement.of({}))], step=1
    )
    opening = writer.asked[0][0]
    used = writer.count_tokens(opening.system) + writer.count_tokens(opening.user)
    assert 24_000 < used <= 26_624 - 2_048
    assert QUESTION in opening.user
    assert "<answer>60 m</answer>" in opening.user


@pytest.mark.parametrize("mode", ["listwise", "pointwise"])
async def test_the_judge_is_told_how_to_look_at_the_candidates(bank, mode):
    marker = Marker(fair=0.5)
    settings = ReflectionSettings(num_candidates=1, mode=mode)
    await Reflector(Writer(written("fair")), marker, bank, settings=settings).reflect([attempt()], step=1)
    assert marker.tasks[0].mode is mode


async def test_a_policy_that_fails_is_a_typed_failure_of_this_question_alone(bank):
    writer = Writer()
    with pytest.raises(ModelError, match="the policy is down"):
        await Reflector(writer, Marker(), bank, settings=SETTINGS).reflect([attempt()], step=1)
    assert writer.closed == len(writer.asked)


async def test_a_group_broken_by_the_world_has_nothing_to_reflect_on(bank):
    broken = [attempt(ending=Ending.ABANDONED)] * 2
    with pytest.raises(ReflectionError, match="all 2 attempts were aborted"):
        await Reflector(Writer(written()), Marker(), bank, settings=SETTINGS).reflect(broken, step=1)


def test_every_intact_attempt_is_as_likely_as_any_other_and_a_broken_one_is_never_drawn():
    group = [attempt(), attempt(ending=Ending.ABANDONED), attempt(ending=Ending.CALL_BUDGET), attempt(ending=None)]
    generator = np.random.default_rng(0)
    drawn = Counter(draw_attempt(group, generator) for _ in range(3_000))
    assert set(drawn) == {0, 2, 3}
    # 1,000 each; the standard deviation is sqrt(3000 * 1/3 * 2/3) = 26.
    assert all(abs(count - 1_000) < 130 for count in drawn.values())


async def test_an_outcome_travels_through_json(bank):
    writer = Writer(written("fair"), "no blocks", "")
    outcome = await Reflector(writer, Marker(fair=0.5), bank, settings=SETTINGS).reflect([attempt()], step=1)
    assert ReflectionOutcome.model_validate_json(outcome.model_dump_json()) == outcome


async def test_without_a_judge_one_reflection_is_kept_unscored(bank):
    item = await Reflector(Writer(written()), Marker(), bank).reflect_unjudged(attempt().parsed)
    assert isinstance(item, BankItem)
    assert item.reflection.score is None
    assert bank.retrieve(QUESTION, "within")[0].item == item


async def test_without_a_judge_form_and_gate_still_decide(bank):
    refused = await Reflector(Writer("no blocks"), Marker(), bank).reflect_unjudged(attempt().parsed)
    assert isinstance(refused, Refusal)
    assert refused.code == "format"


def test_settings_without_room_for_a_prompt_are_refused():
    with pytest.raises(ValueError, match="new_tokens 2048 leaves no room for a prompt in total_tokens 2100"):
        ReflectionSettings(total_tokens=2_100)


def test_reflections_drawn_without_chance_are_refused_where_they_are_to_be_trained_on():
    check_trainable(ReflectionSettings(temperature=0.1))
    with pytest.raises(ValueError, match=r"reflection.temperature is 0, .* set it above 0"):
        check_trainable(ReflectionSettings(temperature=0.0))


async def test_what_the_second_reader_refuses_is_neither_kept_nor_rewarded(bank):
    class SecondReader(Marker):
        async def judge_reflections(self, task):
            rubric_scores = await super().judge_reflections(task)
            return tuple(
                rubric_score._replace(refusal="its purpose is promotion: it sells" if "best" in text else "")
                for rubric_score, text in zip(rubric_scores, task.candidates, strict=True)
            )

    writer = Writer(written("best"), written("fair"))
    settings = SETTINGS.model_copy(update={"num_candidates": 2})
    outcome = await Reflector(writer, SecondReader(best=1.0, fair=0.5), bank, settings=settings).reflect(
        [attempt()], step=1
    )
    assert outcome.chosen == 1
    assert outcome.samples[0].refusal == "second_reader: its purpose is promotion: it sells"
    assert [sample.score.utility for sample in outcome.samples] == pytest.approx([0.0, 0.5])
    assert measure_reflections([outcome], {})["refused"]["reflections"] == {"second_reader": 1}
