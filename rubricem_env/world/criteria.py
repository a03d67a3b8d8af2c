"""The true criteria of an almanac question, stage by stage: each can mark any attempt 0, 1 or 2, and knows why.

The almanac's judge proposes those that separate a group; the true quality of a stage is the weighted mean of all.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from rubricem_env.domain.query import AnswerFormat
from rubricem_env.domain.rubric import Polarity, Rubric
from rubricem_env.domain.stage import Stage
from rubricem_env.world.evidence import Evidence
from rubricem_env.world.questions import Question
from rubricem_env.world.truth import ImplicitNeed, Need, Trap, mentions

MINOR, IMPORTANT, CRITICAL = 1.0, 2.0, 3.0
_GAP_WORDS = ("missing", "not found", "unknown")


class Criterion(NamedTuple):
    """A rubric with the mark that an attempt truly deserves by it."""

    rubric: Rubric
    mark: Callable[[Evidence], int]

    def share(self, evidence: Evidence) -> float:
        """The mark as a share of full marks, a flaw's inverted: 1.0 is always good."""
        marked = self.mark(evidence) / 2
        return marked if self.rubric.polarity is Polarity.POSITIVE else 1.0 - marked


def criteria_of(question: Question) -> tuple[Criterion, ...]:
    """Every criterion of the question, in the order of the stages."""
    return (*_plan(question), *_research(question), *_review(question), *_answer(question))


def _plan(question: Question) -> Iterator[Criterion]:
    # An old and a current value of one attribute are one thing to plan for.
    for need in {(need.attribute, need.subject_id): need for need in _searchable(question)}.values():
        name = "" if need.depends_on else f" of {_name(need)}"
        text = f"The plan asks for the {need.attribute}{name}."
        yield _criterion(Stage.PLAN, f"plans for the {need.attribute}", text, IMPORTANT, partial(_planned, need))
    aspects = tuple(need.aspect for need in question.truth.implicit_needs if need.kind == "stated")
    if question.truth.implicit_needs:
        text = f"The plan provides for the reporting convention of {question.domain}."
        mark = partial(_provided, ("convention", *aspects))
        yield _criterion(Stage.PLAN, "plans for the convention", text, IMPORTANT, mark)


def _planned(need: Need, seen: Evidence) -> int:
    """Full marks for the attribute of the right subject; half for the attribute alone."""
    if not all(mentions(seen.plan, word) for word in need.attribute.split()):
        return 0
    return 2 if need.depends_on or mentions(seen.plan, _name(need)) else 1


def _provided(words: tuple[str, ...], seen: Evidence) -> int:
    return 2 if any(mentions(seen.plan, word) for word in words) else 0


def _research(question: Question) -> Iterator[Criterion]:
    for need in _searchable(question):
        text = f"The search brings up a source for the {need.title}."
        mark = partial(_found, need.document_ids)
        yield _criterion(Stage.RESEARCH, f"finds the {need.title}", text, CRITICAL, mark)
    for duty in question.truth.implicit_needs:
        text = f"The search brings up a source for the {duty.title}."
        yield _criterion(Stage.RESEARCH, f"finds the {duty.title}", text, IMPORTANT, partial(_found, _sources(duty)))
    text = "The agent makes the same search again."
    yield _criterion(Stage.RESEARCH, "repeats a search", text, MINOR, _repeated, Polarity.NEGATIVE)


def _found(documents: tuple[str, ...], seen: Evidence) -> int:
    return 2 * seen.has_shown(documents)


def _repeated(seen: Evidence) -> int:
    return min(2, seen.repeated_calls)


def _review(question: Question) -> Iterator[Criterion]:
    for need in question.truth.needs:
        known = need.title if need.kind == "verdict" else f"the {need.title}"
        text = f"The review states {known} if a source was found, and says that it is missing if none was."
        yield _criterion(Stage.REVIEW, f"audits {known}", text, IMPORTANT, partial(_audited, need))
    for duty in question.truth.implicit_needs:
        text = f"The review states the {duty.title} if a source was found."
        yield _criterion(Stage.REVIEW, f"audits the {duty.title}", text, MINOR, partial(_audited, duty))


def _audited(need: Need | ImplicitNeed, seen: Evidence) -> int:
    """Full marks for stating what was found or owning up to a gap, half for silence about a gap, none for a pretence."""
    was_found = seen.has_shown(need.document_ids if isinstance(need, Need) else _sources(need))
    is_stated = need.is_met_by(seen.review)
    if was_found or is_stated:
        return 2 if was_found and is_stated else 0
    return 2 if any(word in seen.review.casefold() for word in _GAP_WORDS) else 1


def _answer(question: Question) -> Iterator[Criterion]:
    is_exact = question.answer_format is AnswerFormat.EXACT
    for need in question.truth.needs[-1:] if is_exact else question.truth.needs:
        text = f"The answer says: {need.sentence}"
        mark = partial(_given, need) if is_exact else partial(_answered, need)
        yield _criterion(Stage.ANSWER, need.title, text, CRITICAL, mark)
    for duty in question.truth.implicit_needs:
        text = f"The answer says: {duty.sentence}"
        yield _criterion(Stage.ANSWER, duty.title, text, IMPORTANT, partial(_given, duty))
    for trap in {trap.wrong_value: trap for trap in question.truth.traps}.values():
        text = f"The answer gives the wrong value {trap.wrong_value}."
        yield _criterion(Stage.ANSWER, f"{trap.kind} value", text, CRITICAL, partial(_fell, trap), Polarity.NEGATIVE)
    if not is_exact:
        text = "The answer cites snippets that the tools have shown, and no others."
        yield _criterion(Stage.ANSWER, "cites its sources", text, MINOR, _cited)


def _given(need: Need | ImplicitNeed, seen: Evidence) -> int:
    return 2 * need.is_met_by(seen.answer)


def _answered(need: Need, seen: Evidence) -> int:
    """Full marks for the value said of its subject in one sentence; half for the value somewhere."""
    if not need.is_met_by(seen.answer):
        return 0
    if need.kind == "verdict" or need.depends_on:
        return 2
    return 2 if any(need.is_met_by(said) and mentions(said, _name(need)) for said in seen.sentences) else 1


def _fell(trap: Trap, seen: Evidence) -> int:
    return 2 * trap.has_caught(seen.answer)


def _cited(seen: Evidence) -> int:
    if not seen.known_citations:
        return 0
    return 1 if seen.unknown_citations else 2


def _searchable(question: Question) -> tuple[Need, ...]:
    """The needs that a search can serve; a verdict is concluded."""
    return tuple(need for need in question.truth.needs if need.kind != "verdict")


def _sources(duty: ImplicitNeed) -> tuple[str, ...]:
    return duty.document_ids if duty.kind == "stated" else duty.convention_ids


def _name(need: Need) -> str:
    return need.subject_id.replace("-", " ")


def _criterion(
    stage: Stage,
    title: str,
    description: str,
    weight: float,
    mark: Callable[[Evidence], int],
    polarity: Polarity = Polarity.POSITIVE,
) -> Criterion:
    rubric = Rubric(stage=stage, title=title, description=description, polarity=polarity, weight=weight)
    return Criterion(rubric, mark)
