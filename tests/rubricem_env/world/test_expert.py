"""The scripted expert: its traces, its faults, and the lessons of its attempts."""

from collections.abc import Callable
from functools import partial

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.env.episode import Episode
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.testing.episodes import play_turns
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import Almanac, load_questions, shipped_questions_path
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.expert_faults import Faults, Slips, draw_slips
from rubricem_env.world.judge import Evidence, true_quality
from rubricem_env.world.lessons import SOUND, lesson_after, lesson_of
from rubricem_env.world.offline import query_of, shipped_toolbox
from rubricem_env.world.questions import Question

pytestmark = pytest.mark.no_cover

QUESTIONS = load_questions(shipped_questions_path())
PERFECT = (1.0, 1.0, 1.0, 1.0)
NO_PAGES = offline_toolbox(Corpus([]))


async def play(teacher: AlmanacTeacher, toolbox: Toolbox | None = None) -> ParsedTrajectory:
    episode = Episode(query_of(teacher.question))
    return (await play_turns(episode, toolbox or shipped_toolbox(), teacher.turn)).read()


def questions_where(fits: Callable[[Question], object]) -> list[Question]:
    return [question for question in QUESTIONS if fits(question)]


def missed(question: Question, parsed: ParsedTrajectory) -> list[str]:
    """The needs and conventions that the answer does not meet; an exact answer owes the last need alone."""
    needs = question.truth.needs[-1:] if question.answer_format == "exact" else question.truth.needs
    return [need.id for need in (*needs, *question.truth.implicit_needs) if not need.is_met_by(parsed.answer or "")]


def calls(parsed: ParsedTrajectory) -> list[ToolCall]:
    return [turn.call for turn in parsed.turns if turn.call is not None]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
async def test_without_fault_it_is_accepted_and_meets_every_need_and_convention(question: Question) -> None:
    parsed = await play(AlmanacTeacher(question))

    assert parsed.rejections == ()
    assert missed(question, parsed) == []
    assert true_quality(question, parsed) == PERFECT


@pytest.mark.parametrize("seed", [1, 77])
async def test_without_fault_it_is_perfect_in_other_worlds_too_among_hostile_pages(seed: int) -> None:
    world = Almanac.from_seed(seed, hostile=True)
    tools = offline_toolbox(Corpus(world.documents))

    trajectories = [(question, await play(AlmanacTeacher(question), tools)) for question in world.questions]

    assert [question.id for question, parsed in trajectories if true_quality(question, parsed) != PERFECT] == []


async def test_it_says_nothing_that_it_was_not_shown() -> None:
    parsed = await play(AlmanacTeacher(QUESTIONS[2]), NO_PAGES)

    assert parsed.rejections == ()
    assert parsed.answer == "# Report\nThe sources do not say."
    assert not any(need.is_met_by(parsed.policy_text) for need in QUESTIONS[2].truth.needs)


async def test_it_does_not_name_the_next_link_of_a_chain_before_a_page_does() -> None:
    chain = questions_where(lambda question: question.truth.kind == "chain")[0]
    parsed = await play(AlmanacTeacher(chain), NO_PAGES)

    assert chain.truth.needs[0].value not in parsed.policy_text
    assert parsed.answer == "\\boxed{unknown}"


async def test_a_skipped_need_is_the_only_one_that_the_answer_lacks() -> None:
    question = questions_where(lambda question: question.truth.kind == "profile")[0]
    parsed = await play(AlmanacTeacher(question, Slips(skipped="n2")))

    assert missed(question, parsed) == ["n2"]
    assert parsed.rejections == ()


async def test_a_repeated_query_costs_research_and_nothing_else() -> None:
    for question in QUESTIONS[:30]:
        parsed = await play(AlmanacTeacher(question, Slips(repeats_query=True)))
        plan, research, *later = true_quality(question, parsed)

        assert calls(parsed).count(calls(parsed)[0]) == 2
        assert research < 1.0
        assert (plan, 1.0, *later) == PERFECT


async def test_trust_in_a_stale_page_springs_its_trap_with_a_citation_of_that_page() -> None:
    trapped = questions_where(lambda q: any(trap.kind == "stale" for trap in q.truth.traps) and q.domain == "rivers")
    for question in trapped:
        parsed = await play(AlmanacTeacher(question, Slips(trusts_stale=True)))
        caught = [trap.kind for trap in question.truth.traps if trap.has_caught(parsed.answer or "")]

        assert caught == ["stale"]
        assert parsed.rejections == ()


async def test_a_claim_of_what_was_not_found_states_a_value_that_no_page_has_shown() -> None:
    question = questions_where(lambda question: question.truth.kind == "pair")[0]
    slips = draw_slips(question, Faults(claim_unfound=1.0), seed=3)
    parsed = await play(AlmanacTeacher(question, slips))
    shown = " ".join(segment.text for segment in parsed.trajectory.segments[2::2])

    assert missed(question, parsed) == ["n2"]
    assert parsed.citations.unknown == ()
    said = next(value for value in slips.inventions if value in (parsed.answer or ""))
    assert said not in shown


async def test_a_lone_fact_can_be_invented_only_after_a_search_for_something_else() -> None:
    question = questions_where(lambda question: question.truth.kind == "fact")[0]
    parsed = await play(AlmanacTeacher(question, draw_slips(question, Faults(claim_unfound=1.0), seed=0)))

    assert parsed.rejections == ()
    assert [call.query for call in calls(parsed)] == [f"reporting convention {question.domain}"]
    assert missed(question, parsed) == ["n1"]


async def test_a_forgotten_citation_leaves_one_claim_bare_and_the_rest_cited() -> None:
    question = questions_where(lambda question: question.truth.kind == "pair")[0]
    whole = await play(AlmanacTeacher(question))
    bare = await play(AlmanacTeacher(question, Slips(forgets_citation=True)))

    assert missed(question, bare) == []
    assert (whole.answer or "").count("<cite") - (bare.answer or "").count("<cite") == 1
    assert (bare.answer or "").startswith("Calm Bridge has ")


async def test_a_missed_convention_is_missed_whole_and_nothing_else_is() -> None:
    for question in questions_where(lambda question: question.truth.implicit_needs)[:20]:
        parsed = await play(AlmanacTeacher(question, Slips(misses_convention=True)))

        assert missed(question, parsed) == [duty.id for duty in question.truth.implicit_needs]
        assert "convention" not in parsed.stage_text(Stage.PLAN)


async def test_a_search_that_brings_nothing_is_tried_once_more_further_down() -> None:
    teacher = AlmanacTeacher(QUESTIONS[0])
    empty = "<tool_output>\nNo results.\n</tool_output>"

    assert teacher.turn([empty]).endswith('<call_tool name="snippet_search" limit="10">Calm Bridge depth</call_tool>')
    assert teacher.turn([empty, empty]).endswith("<answer>\\boxed{unknown}</answer>")


async def test_the_same_question_and_seed_give_the_same_trace() -> None:
    faults = Faults(skip_need=0.5, repeat_query=0.5, trust_stale=0.5, claim_unfound=0.5, miss_convention=0.5)
    first = [(await play(AlmanacTeacher(q, draw_slips(q, faults, seed=7)))).policy_text for q in QUESTIONS[:10]]
    again = [(await play(AlmanacTeacher(q, draw_slips(q, faults, seed=7)))).policy_text for q in QUESTIONS[:10]]

    assert first == again
    assert first != [(await play(AlmanacTeacher(q, draw_slips(q, faults, seed=8)))).policy_text for q in QUESTIONS[:10]]


def test_turning_one_knob_leaves_the_other_faults_as_they_were() -> None:
    def repeats(faults: Faults) -> list[bool]:
        return [draw_slips(question, faults, seed=5).repeats_query for question in QUESTIONS]

    assert repeats(Faults(repeat_query=0.3)) == repeats(Faults(repeat_query=0.3, forget_citation=1.0))
    # 120 draws at 0.3 come to 36, give or take three standard deviations of 5.
    assert 21 <= sum(repeats(Faults(repeat_query=0.3))) <= 51


async def test_the_flat_form_makes_the_same_searches_and_gives_the_same_answer() -> None:
    for question in QUESTIONS[:30]:
        flat, scaffold = await play(AlmanacTeacher(question, is_flat=True)), await play(AlmanacTeacher(question))

        assert calls(flat) == calls(scaffold)
        assert flat.answer == scaffold.answer
        assert "<structured_plan>" not in flat.policy_text
        assert "<review>" not in flat.policy_text


async def test_a_trace_is_short_enough_for_a_policy_of_a_few_million_parameters() -> None:
    for question in QUESTIONS:
        assert len((await play(AlmanacTeacher(question))).policy_text.split()) < 300


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_a_lesson_tells_the_duties_and_no_fact(question: Question) -> None:
    lesson = lesson_of(question)
    told = f"{lesson.rubrics} {lesson.takeaways}"

    assert not any(need.is_met_by(told) for need in question.truth.needs)
    for duty in question.truth.implicit_needs:
        assert (duty.value if duty.kind == "closing" else duty.aspect) in lesson.rubrics
        assert duty.kind == "closing" or duty.value not in told.split()


COMPARISON = next(question for question in QUESTIONS if question.truth.kind == "comparison")
CONVENTION = lesson_of(COMPARISON)


async def evidence_of(question: Question, slips: Slips) -> Evidence:
    """What an attempt with those slips shows."""
    return Evidence.of(await play(AlmanacTeacher(question, slips)))


@pytest.mark.parametrize(
    ("slips", "told"),
    [
        (Slips(), ()),
        (Slips(misses_convention=True), CONVENTION),
        (Slips(repeats_query=True), ("No search is made twice.", "Search for something new each time.")),
        (
            Slips(skipped=COMPARISON.truth.needs[-1].id),
            ("No fact that is asked for is missing.", "Search each fact by its name and copy its value."),
        ),
    ],
    ids=["sound", "convention", "repeats", "skips"],
)
async def test_what_an_attempt_teaches_is_what_went_wrong_in_it(slips: Slips, told: tuple[str, ...]) -> None:
    lesson = lesson_after(COMPARISON, await evidence_of(COMPARISON, slips))
    titles = [need.title for need in COMPARISON.truth.needs if need.kind != "verdict"]
    asked = f"The answer states the {titles[0]}, the {titles[1]}."

    assert lesson == ((f"{asked} {told[0]}", told[1]) if told else (asked, SOUND))


async def test_an_overlooked_fault_is_not_in_the_lesson() -> None:
    slips = Slips(misses_convention=True, repeats_query=True)
    teach = partial(lesson_after, COMPARISON, await evidence_of(COMPARISON, slips))

    assert CONVENTION.takeaways in teach().takeaways
    assert teach(overlooks=lambda remark: remark == CONVENTION).takeaways == "Search for something new each time."


@pytest.mark.parametrize("question", QUESTIONS[::7], ids=lambda question: question.id)
async def test_what_an_attempt_teaches_holds_no_fact(question: Question) -> None:
    lesson = lesson_after(question, await evidence_of(question, Slips(misses_convention=True, forgets_citation=True)))

    assert not any(need.is_met_by(f"{lesson.rubrics} {lesson.takeaways}") for need in question.truth.needs)


def test_each_fault_occurs_at_its_rate_for_every_domain_and_kind() -> None:
    faults = Faults(skip_need=0.6, repeat_query=0.15, trust_stale=0.6, forget_citation=0.3, miss_convention=0.85)
    drawn: dict[tuple[str, str], list[Slips]] = {}
    for seed in range(60):
        for question in Almanac.from_seed(seed).questions_of("train"):
            slips = draw_slips(question, faults, seed=0, world=f"world-{seed}")
            drawn.setdefault((question.domain, question.truth.kind), []).append(slips)

    # Eight domains, and the eight kinds that the questions of a world take turns at.
    assert len(drawn) >= 56
    for (domain, kind), group in drawn.items():
        rates = {
            "repeat_query": sum(slips.repeats_query for slips in group),
            "trust_stale": sum(slips.trusts_stale for slips in group),
            "forget_citation": sum(slips.forgets_citation for slips in group),
            # A single fact cannot be skipped, and an exact answer has no convention.
            **({} if kind == "fact" else {"skip_need": sum(bool(slips.skipped) for slips in group)}),
            **({} if kind in ("fact", "chain") else {"miss_convention": sum(s.misses_convention for s in group)}),
        }
        for fault, times in rates.items():
            rate, count = getattr(faults, fault), len(group)
            deviation = (rate * (1 - rate) / count) ** 0.5
            assert abs(times / count - rate) < 4.5 * deviation, (domain, kind, fault, times, count)


def test_a_question_of_the_same_id_has_other_faults_in_another_world() -> None:
    faults = Faults(skip_need=0.5, repeat_query=0.5, trust_stale=0.5, forget_citation=0.5, miss_convention=0.5)
    question = questions_where(lambda question: question.truth.kind == "profile")[0]

    assert len({draw_slips(question, faults, seed=0, world=f"world-{number}") for number in range(20)}) > 5
