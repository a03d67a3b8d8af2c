"""HealthBench: which rubric items an answer meets, and the score that follows.

One judge call per item. An example's score is the sum of the points met over the sum of the positive points; it is
not clipped and can lie far below 0. Only the mean over examples is clipped (`healthbench_aggregate`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pydantic import ConfigDict

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.reply_json import Unparsed, parse_json
from rubricem_env.domain.base import Frozen, Text

NEVER_PARSABLE = "JudgeNeverParsable"
"""The official loop asks for ever; this is the name under which a recording that ends without a verdict is known."""


class RubricItem(Frozen):
    """One criterion with its points (negative: something to avoid) and its tags, such as `axis:accuracy`."""

    model_config = ConfigDict(extra="ignore")

    criterion: Text
    points: int | float
    tags: tuple[Text, ...] = ()

    def for_judge(self) -> str:
        """The item as the judge reads it. The judge sees the points."""
        return f"[{self.points}] {self.criterion}"


class GradedItem(NamedTuple):
    """A verdict and how many replies it took to get one."""

    met: bool
    judge_calls: int


class ExampleScore(NamedTuple):
    """All metrics of one example, in the official order, which the aggregate's random numbers depend on."""

    metrics: dict[str, float]
    items: tuple[GradedItem, ...]

    @property
    def judge_calls(self) -> int:
        return sum(item.judge_calls for item in self.items)


def parse_verdict(reply: str) -> bool | Unparsed:
    """Whether the judge says that the criterion is met; `Unparsed` where the official scorer asks again.

    A bare number, null or boolean raises ScoringError("TypeError"): the official code looks for a key in it.
    """
    verdict = parse_json(_unfenced(reply))
    if isinstance(verdict, Unparsed):
        return verdict
    if isinstance(verdict, dict):
        met = verdict.get("criteria_met")
        return met if isinstance(met, bool) else Unparsed("criteria_met is not true or false")
    if isinstance(verdict, list | str) and "criteria_met" not in verdict:
        return Unparsed(f"the reply is a JSON {type(verdict).__name__}, not an object")
    raise ScoringError("TypeError", f"a judge reply is the JSON value {verdict!r}, not an object")


def grade_item(replies: Sequence[str]) -> GradedItem:
    """The first readable verdict. Official mode has no limit, so the limit is the recording."""
    for position, reply in enumerate(replies):
        met = parse_verdict(reply)
        if isinstance(met, bool):
            return GradedItem(met, position + 1)
    raise ScoringError(
        NEVER_PARSABLE, f"none of {len(replies)} judge replies holds a verdict", judge_calls=len(replies)
    )


def points_share(items: Iterable[tuple[RubricItem, bool]]) -> float | None:
    """Points met over positive points; None where no item has positive points, which is no score at all."""
    graded = list(items)
    possible = sum(item.points for item, _ in graded if item.points > 0)
    if possible == 0:
        return None
    return sum(item.points for item, met in graded if met) / possible


def score_example(
    rubrics: Sequence[RubricItem], example_tags: Sequence[str], *, replies: Sequence[Sequence[str]]
) -> ExampleScore:
    """The official metrics of one answer: overall_score, then example tags, then rubric tags by first appearance.

    Refuses, as the official assertions do, an example without positive points and a tag given twice.
    """
    if not rubrics:
        # The official code maps over the items with a pool of min(threads, items) workers, and a pool of 0 is refused.
        raise ScoringError("ValueError", "the example has no rubric item")
    items = tuple(grade_item(attempts) for attempts in replies)
    graded = [(rubric, item.met) for rubric, item in zip(rubrics, items, strict=True)]
    overall = points_share(graded)
    if overall is None:
        raise ScoringError("AssertionError", "no rubric item has positive points")
    if len(set(example_tags)) != len(example_tags):
        raise ScoringError("AssertionError", f"an example tag is given twice in {list(example_tags)}")
    metrics = {"overall_score": overall} | dict.fromkeys(example_tags, overall)
    return ExampleScore(metrics | _tag_scores(graded), items)


def strict_verdict(replies: Sequence[str], *, points: float, max_tries: int = 3) -> bool:
    """Strict mode: after the last try a missing verdict counts as the worst case, met where points are negative."""
    for reply in replies[:max_tries]:
        verdict = parse_json(_unfenced(reply))
        met = verdict.get("criteria_met") if isinstance(verdict, dict) else None
        if isinstance(met, bool):
            return met
    return points < 0


def _tag_scores(graded: Sequence[tuple[RubricItem, bool]]) -> dict[str, float]:
    by_tag: dict[str, list[tuple[RubricItem, bool]]] = {}
    for rubric, met in graded:
        if len(set(rubric.tags)) != len(rubric.tags):
            raise ScoringError("AssertionError", f"a rubric item carries a tag twice: {list(rubric.tags)}")
        for tag in rubric.tags:
            by_tag.setdefault(tag, []).append((rubric, met))
    shares = {tag: points_share(items) for tag, items in by_tag.items()}
    # A tag whose items are all negative has nothing to divide by: it is left out of this example, not set to 0.
    return {tag: share for tag, share in shares.items() if share is not None}


def _unfenced(reply: str) -> str:
    # Only a fence labelled json is taken off the front: a bare one stays, fails to parse and is asked again.
    return reply.strip().removeprefix("```json").removesuffix("```").strip()
