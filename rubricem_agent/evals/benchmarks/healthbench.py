"""HealthBench: which rubric items an answer meets, and the score that follows.

One judge call per item. An example's score is the sum of the points met over the sum of the positive points; it is not
clipped and can be far below 0. Only the mean over examples is clipped. Means are published in two ways:

official   mean per metric over the examples that have it, then clipped to 0..1; bootstrap with numpy's legacy numbers
drtulu     plain mean and standard deviation, never clipped, so that a published value can be negative

Files are JSON Lines, one conversation with its rubric per line.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rubricem_agent.data.chatml import ChatTurn
from rubricem_agent.evals.benchmark import OR_FROM_MEMORY, Benchmark
from rubricem_agent.evals.dataset import Example, Gold
from rubricem_agent.evals.files import FileRow, json_lines, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader, Totals
from rubricem_agent.evals.reply_parsing import Unparsed, parse_json, read_form
from rubricem_agent.evals.rules import GPT, drtulu_rules, official_rules, paper_rules
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

NEVER_PARSABLE = "JudgeNeverParsable"
"""The official loop never ends; this is the name for a recording that ends without a verdict."""
_OURS = ("healthbench",)
_OF_DRTULU = (*_OURS, "healthbench_one", "healthbench_many")
BOOTSTRAP_DRAWS = 1000
BOOTSTRAP_SEED = 0
"""The official bootstrap is unseeded; ours is seeded, so that a report can be reproduced."""


class RubricItem(FileRow):
    """One criterion with its points (negative: something to avoid) and its tags, such as `axis:accuracy`."""

    criterion: Text
    points: int | float
    tags: tuple[Text, ...] = ()

    def for_judge(self) -> str:
        """The item as the judge reads it. The judge sees the points."""
        return f"[{self.points}] {self.criterion}"


class HealthBenchGold(Gold):
    """A row of the file: a conversation, its rubric and its tags."""

    id: Text = Field(validation_alias="prompt_id", min_length=1)
    prompt: tuple[ChatTurn, ...] = Field(min_length=1)
    rubrics: tuple[RubricItem, ...]
    example_tags: tuple[Text, ...]


load = rows_loader(
    "healthbench",
    json_lines,
    HealthBenchGold,
    # A single turn is its content alone.
    prompt=lambda row: row.prompt[0].content if len(row.prompt) == 1 else render(row.prompt),
    turns=lambda row: row.prompt,
    num_rows=5000,
)


def render(turns: Iterable[ChatTurn]) -> str:
    """Turns as "role: content" with a blank line between."""
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


def question_of(example: Example, grader: Grader) -> str:
    """The conversation as the agent gets it.

    DR Tulu names the turns after patient and physician, and puts the question last.
    """
    if not grader.rules.is_drtulu:
        return example.prompt_text
    *earlier, last = example.turns or (ChatTurn(role="user", content=example.prompt_text),)
    if not earlier:
        return grader.user_prompt("healthbench_one", question=last.content)
    names = {"user": "Patient", "assistant": "Physician"}
    talk = "\n\n".join(f"{names.get(turn.role, turn.role)}: {turn.content}" for turn in earlier)
    return grader.user_prompt("healthbench_many", talk=talk, question=last.content)


class _ItemVerdict(Frozen):
    explanation: str = ""
    criteria_met: bool


def read_verdict(reply: str) -> bool | Unparsed:
    """Whether the criterion is met, by a reply that is one JSON object of the form that was asked for."""
    said = read_form(reply, _ItemVerdict)
    return said if isinstance(said, Unparsed) else said.criteria_met


def parse_verdict(reply: str) -> bool | Unparsed:
    """Whether the judge says that the criterion is met, by the official parse.

    It is `Unparsed` where the official scorer asks again. A bare number, null or boolean raises
    ScoringError("TypeError"): the official code looks for a key in it.
    """
    # Only a fence labelled json is removed at the front: a bare one stays, fails to parse and is asked again.
    verdict = parse_json(reply.strip().removeprefix("```json").removesuffix("```").strip())
    if isinstance(verdict, Unparsed):
        return verdict
    if isinstance(verdict, dict):
        met = verdict.get("criteria_met")
        return met if isinstance(met, bool) else Unparsed("criteria_met is not true or false")
    if isinstance(verdict, list | str) and "criteria_met" not in verdict:
        return Unparsed(f"the reply is a JSON {type(verdict).__name__}, not an object")
    raise ScoringError("TypeError", f"a judge reply is the JSON value {verdict!r}, not an object")


def _parse_officially(reply: str) -> bool | Unparsed:
    """The official parse; where it would stop the run, the judge is asked again."""
    try:
        return parse_verdict(reply)
    except ScoringError as refusal:
        return Unparsed(refusal.reason)


def points_share(items: Iterable[tuple[RubricItem, bool]]) -> float | None:
    """Points met over positive points; None (no score) where no item has positive points."""
    graded = list(items)
    possible = sum(item.points for item, _ in graded if item.points > 0)
    return sum(item.points for item, met in graded if met) / possible if possible else None


def score_example(
    rubrics: Sequence[RubricItem], example_tags: Sequence[str], *, met: Sequence[bool]
) -> dict[str, float]:
    """The official metrics of one answer: overall_score, then example tags, then rubric tags by first appearance.

    The aggregate's random numbers depend on this order. Refuses, as the official assertions do, an example without
    positive points and a tag given twice.
    """
    if not rubrics:
        # The official code maps over the items with a pool of min(threads, items) workers, and a pool of 0 is refused.
        raise ScoringError("ValueError", "the example has no rubric item")
    graded = list(zip(rubrics, met, strict=True))
    overall = points_share(graded)
    if overall is None:
        raise ScoringError("AssertionError", "no rubric item has positive points")
    if len(set(example_tags)) != len(example_tags):
        raise ScoringError("AssertionError", f"an example tag is given twice in {list(example_tags)}")
    by_tag: dict[str, list[tuple[RubricItem, bool]]] = {}
    for rubric, is_met in graded:
        if len(set(rubric.tags)) != len(rubric.tags):
            raise ScoringError("AssertionError", f"a rubric item carries a tag twice: {list(rubric.tags)}")
        for tag in rubric.tags:
            by_tag.setdefault(tag, []).append((rubric, is_met))
    shares = {tag: points_share(items) for tag, items in by_tag.items()}
    # A tag whose items are all negative has nothing to divide by: it is left out of this example, not set to 0.
    tag_scores = {tag: share for tag, share in shares.items() if share is not None}
    return {"overall_score": overall} | dict.fromkeys(example_tags, overall) | tag_scores


def official_aggregate(
    examples: Sequence[Mapping[str, float]], *, rng: np.random.RandomState, draws: int = BOOTSTRAP_DRAWS
) -> dict[str, float]:
    """Clipped mean, n_samples and bootstrap_std of each metric name.

    The official code draws from numpy's global legacy generator: a RandomState of the same seed gives the same stream,
    provided that names are visited in order of first appearance, which this function does. One matrix of legacy
    integers is the same stream as the official draw-by-draw choice, and much faster.
    """
    metrics: dict[str, float] = {}
    for name, values in values_by_name(examples).items():
        metrics[name] = clipped_mean(values)
        metrics[f"{name}:n_samples"] = len(values)
        metrics[f"{name}:bootstrap_std"] = clipped_spread(
            values[rng.randint(0, len(values), size=(draws, len(values)))]
        )
    return metrics


def drtulu_aggregate(examples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Plain mean and population standard deviation per name, not clipped."""
    metrics: dict[str, float] = {}
    for name, values in values_by_name(examples).items():
        metrics[name] = float(np.mean(values))
        metrics[f"{name}:std"] = float(np.std(values))
    return metrics


def clipped_mean(values: NDArray[np.float64]) -> float:
    """The mean, clipped to 0..1 after averaging: a negative mean is reported as 0."""
    return float(np.clip(np.mean(values), 0, 1))


def clipped_spread(resamples: NDArray[np.float64]) -> float:
    return float(np.std(np.clip(resamples.mean(axis=1), 0, 1)))


def values_by_name(examples: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    values: dict[str, list[float]] = {}
    for metrics in examples:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
        # The official record has the overall score twice: as a metric and, after all of them, as its `score`.
        if "overall_score" in metrics:
            values.setdefault("score", []).append(metrics["overall_score"])
    return {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One round: a question for each item, about the conversation with the answer as its last turn.

    In the worst case an item without a verdict is met where its points are negative; strict mode counts that.
    """
    gold = case.gold_as(HealthBenchGold)
    # DR Tulu's judge sees the conversation as its agent got it: one user turn.
    flat = (ChatTurn(role="user", content=question_of(case.example, grader)),)
    turns = flat if grader.rules.is_drtulu else case.example.turns or flat
    conversation = render((*turns, ChatTurn(role="assistant", content=case.answer.text)))
    verdicts = yield tuple(
        grader.question(
            f"item-{number}",
            "healthbench",
            parse=read_verdict,
            official_parse=_parse_officially,
            conversation=conversation,
            criterion=item.for_judge(),
        )
        for number, item in enumerate(gold.rubrics)
    )
    labels = {f"item-{number}": str(met) for number, met in enumerate(verdicts) if isinstance(met, bool)}
    pairs = zip(gold.rubrics, verdicts, strict=True)
    met = [item.points < 0 if isinstance(verdict, Unparsed) else verdict for item, verdict in pairs]
    worst = points_share(zip(gold.rubrics, met, strict=True)) or 0.0
    try:
        if len(labels) < len(verdicts):
            raise ScoringError(NEVER_PARSABLE, "none of 1 judge replies holds a verdict")
        metrics = score_example(gold.rubrics, gold.example_tags, met=met)
    except ScoringError as refusal:
        if not grader.rules.is_strict or points_share((item, True) for item in gold.rubrics) is None:
            return Grade(None, worst, refusal.reason, labels=labels)
        metrics = {"overall_score": worst}
    return Grade(metrics["overall_score"], worst, metrics=metrics, labels=labels)


def total(grades: Sequence[Grade], rules: Rules) -> Totals:
    """The official means, clipped after averaging; those of DR Tulu are not clipped."""
    examples = [grade.metrics for grade in grades if grade.score is not None]
    if rules.is_drtulu:
        metrics = drtulu_aggregate(examples)
    else:
        metrics = official_aggregate(examples, rng=np.random.RandomState(BOOTSTRAP_SEED))
    return {"overall_score": metrics.pop("score", None), **metrics}


# Officially asked without limit; ten tries end a judge that never gives a verdict.
OFFICIAL = official_rules(GPT, temperature=0.5, tries=10, clips_mean=True, sampling="simple_evals")
DRTULU = drtulu_rules(OFFICIAL, max_output_tokens=1000, answer_format=AnswerFormat.SHORT)
BENCHMARK = Benchmark(
    name="healthbench",
    title="HealthBench",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "overall_score", total, prompts=_OF_DRTULU if rules.is_drtulu else _OURS),
    official=OFFICIAL,
    drtulu=DRTULU,
    paper=paper_rules(DRTULU, size=1000),
    is_long=True,
    question=question_of,
    searches=OR_FROM_MEMORY,
    hub="hf:openai/healthbench/2025-05-07-06-14-12_oss_eval.jsonl",
    guidance="Reply to the last message of the conversation as a careful medical assistant would.",
    ids="prompt_id of the data file",
)
