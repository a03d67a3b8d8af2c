"""The scripted form of a reflection: it names duties, and never a value that only a page may tell."""

from functools import partial

import pytest

from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.research_env import query_of, shipped_toolbox
from rubricem_env.env.step import advance
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.expert import SOUND, AlmanacTeacher, Slips, lesson_after, lesson_of
from rubricem_env.world.judge import Evidence
from rubricem_env.world.questions import Question

QUESTIONS = load_questions(shipped_questions_path())


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_a_lesson_tells_the_duties_and_no_fact(question: Question) -> None:
    lesson = lesson_of(question)
    told = f"{lesson.rubrics} {lesson.takeaways}"

    assert not any(need.is_met_by(told) for need in question.truth.needs)
    for duty in question.truth.implicit_needs:
        assert (duty.value if duty.kind == "closing" else duty.aspect) in lesson.rubrics
        assert duty.kind == "closing" or duty.value not in told.split()


def test_a_lesson_reads_so() -> None:
    comparison = next(question for question in QUESTIONS if question.truth.kind == "comparison")

    assert lesson_of(comparison) == (
        "The answer states the season and says that all figures are at low water.",
        "Search the reporting convention of rivers and follow it.",
    )


COMPARISON = next(question for question in QUESTIONS if question.truth.kind == "comparison")
CONVENTION = lesson_of(COMPARISON)


async def evidence_of(question: Question, slips: Slips) -> Evidence:
    """What an attempt with those slips shows."""
    teacher, seen = AlmanacTeacher(question, slips), list[str]()
    episode = Episode(query_of(question))
    reply = await advance(episode, shipped_toolbox(), teacher.turn(seen))
    while not isinstance(reply, Finished):
        seen.append(reply.observation)
        reply = await advance(episode, shipped_toolbox(), teacher.turn(seen))
    return Evidence.of(episode.read())


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


async def test_an_overlooked_fault_is_not_told() -> None:
    slips = Slips(misses_convention=True, repeats_query=True)
    teach = partial(lesson_after, COMPARISON, await evidence_of(COMPARISON, slips))

    assert CONVENTION.takeaways in teach().takeaways
    assert teach(overlooks=lambda remark: remark == CONVENTION).takeaways == "Search for something new each time."


@pytest.mark.parametrize("question", QUESTIONS[::7], ids=lambda question: question.id)
async def test_what_an_attempt_teaches_holds_no_fact(question: Question) -> None:
    lesson = lesson_after(question, await evidence_of(question, Slips(misses_convention=True, forgets_citation=True)))

    assert not any(need.is_met_by(f"{lesson.rubrics} {lesson.takeaways}") for need in question.truth.needs)
