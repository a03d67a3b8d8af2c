"""HealthBench: which rubric items an answer meets, and the score that follows.

One judge call per item. An example's score is the sum of the points met over the sum of the positive points; it is
not clipped and can lie far below 0. Only the mean over examples is clipped (`healthbench_aggregate`).

HealthBench over many examples: the official clipped means, and the two other ways they are published.

official   mean per metric over the examples that have it, then clipped to 0..1; bootstrap with numpy's legacy numbers
drtulu     plain mean and standard deviation, never clipped, so that a published value can be negative
inspect    clipped mean of the overall scores; bootstrap with a numpy Generator

HealthBench as inspect_evals 0.26 grades it, kept to read published numbers: it departs from the official scorer.

Three tries, then the item counts as not met, which helps a model on a negative item; unlabelled fences are read;
no rubric or no positive points is a 0, not an error; a length penalty may be subtracted.

HealthBench files: JSON Lines, one conversation with its rubric per line.

HealthBench: one question for each rubric item, asked about the conversation with the answer as its last turn.

Recorded HealthBench cases.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, JsonValue, model_validator

from rubricem_agent.evals.base import (
    Benchmark,
    CaseInput,
    ChatTurn,
    EvaluationMode,
    Example,
    Gold,
    RecordedInput,
    Replies,
    Rules,
    ScoringError,
    Unit,
    Unparsed,
    parse_json,
)
from rubricem_agent.evals.files import Expectation, FileRow, assemble, json_lines, read_row
from rubricem_agent.evals.grading import (
    Case,
    Grade,
    GradedExample,
    Grading,
    GradingQuestion,
    JudgePrompts,
    JudgeReplies,
    Totals,
)
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


class HealthBenchVerdict(NamedTuple):
    """A verdict and how many replies it took to get one."""

    met: bool
    judge_calls: int


class ExampleScore(NamedTuple):
    """All metrics of one example, in the official order, which the aggregate's random numbers depend on."""

    metrics: dict[str, float]
    items: tuple[HealthBenchVerdict, ...]

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


def grade_item(replies: Sequence[str]) -> HealthBenchVerdict:
    """The first readable verdict. Official mode has no limit, so the limit is the recording."""
    for position, reply in enumerate(replies):
        met = parse_verdict(reply)
        if isinstance(met, bool):
            return HealthBenchVerdict(met, position + 1)
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


BOOTSTRAP_DRAWS = 1000


class Aggregate(NamedTuple):
    """The headline (None where no example has a score) and every named number beside it."""

    score: float | None
    metrics: dict[str, float]


class InspectScore(NamedTuple):
    """Headline and bootstrap error as inspect_evals computes them."""

    score: float
    bootstrap_std_error: float


def official_aggregate(
    examples: Sequence[Mapping[str, float]], *, rng: np.random.RandomState, draws: int = BOOTSTRAP_DRAWS
) -> Aggregate:
    """Clipped mean, n_samples and bootstrap_std of each metric name.

    The official code draws from numpy's global legacy generator: a RandomState of the same seed gives the same stream,
    provided that names are visited in order of first appearance, which this function keeps.
    """
    metrics: dict[str, float] = {}
    for name, values in _values_by_name(examples).items():
        metrics[name] = clipped_mean(values)
        metrics[f"{name}:n_samples"] = len(values)
        metrics[f"{name}:bootstrap_std"] = legacy_bootstrap_std(values, rng=rng, draws=draws)
    return _with_headline(metrics)


def drtulu_aggregate(examples: Sequence[Mapping[str, float]]) -> Aggregate:
    """Plain mean and population standard deviation per name, not clipped."""
    metrics: dict[str, float] = {}
    for name, values in _values_by_name(examples).items():
        metrics[name] = float(np.mean(values))
        metrics[f"{name}:std"] = float(np.std(values))
    return _with_headline(metrics)


def inspect_aggregate(
    examples: Sequence[Mapping[str, float]], *, rng: np.random.Generator, draws: int = BOOTSTRAP_DRAWS
) -> InspectScore:
    """Clipped mean of the overall scores, 0 where there is none, and its bootstrap error."""
    values = _values_by_name(examples).get("overall_score")
    if values is None:
        return InspectScore(0.0, 0.0)
    picks = rng.integers(0, len(values), size=(draws, len(values)))
    return InspectScore(clipped_mean(values), _clipped_spread(values[picks]))


def clipped_mean(values: NDArray[np.float64]) -> float:
    """The mean, clipped to 0..1 after averaging: a model below zero reads 0."""
    return float(np.clip(np.mean(values), 0, 1))


def legacy_bootstrap_std(values: NDArray[np.float64], *, rng: np.random.RandomState, draws: int) -> float:
    """Standard deviation of the clipped means of `draws` resamples.

    One matrix of legacy integers is the same stream as the official draw-by-draw choice, and much faster.
    """
    picks = rng.randint(0, len(values), size=(draws, len(values)))
    return _clipped_spread(values[picks])


def _clipped_spread(resamples: NDArray[np.float64]) -> float:
    return float(np.std(np.clip(resamples.mean(axis=1), 0, 1)))


def _values_by_name(examples: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    values: dict[str, list[float]] = {}
    for metrics in examples:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
        # The official record carries the overall score twice: as a metric and, after all of them, as its `score`.
        if "overall_score" in metrics:
            values.setdefault("score", []).append(metrics["overall_score"])
    return {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}


def _with_headline(metrics: dict[str, float]) -> Aggregate:
    return Aggregate(metrics.get("score"), {name: value for name, value in metrics.items() if name != "score"})


MAX_TRIES = 3


def inspect_met(replies: Sequence[str]) -> JsonValue:
    """The verdict as it is counted: a boolean, or after three tries whatever the last reply held under criteria_met."""
    judge = Replies(replies)
    last: dict[str, JsonValue] = {}
    while judge.calls < MAX_TRIES:
        reply = judge.ask()
        if reply is None:
            last = {"criteria_met": False} if judge.calls == MAX_TRIES else last
            continue
        parsed = parse_json(_unfenced_json(reply))
        last = parsed if isinstance(parsed, dict) else {}
        if isinstance(last.get("criteria_met"), bool):
            break
    return last.get("criteria_met", False)


def inspect_score(rubrics: Sequence[RubricItem], met: Sequence[JsonValue]) -> float:
    """Points of the items that read as true over the positive points; 0 where there are none."""
    possible = sum(item.points for item in rubrics if item.points > 0)
    achieved = sum(item.points for item, value in zip(rubrics, met, strict=True) if value)
    return achieved / possible if possible > 0 else 0.0


def length_adjusted(score: float, answer: str, *, center: float, penalty_per_500_chars: float) -> float:
    """The score less `penalty_per_500_chars` for every 500 characters above `center` (more, where below)."""
    return score - penalty_per_500_chars * ((len(answer) - center) / 500.0)


def _unfenced_json(reply: str) -> str:
    text = reply.strip()
    text = text.removeprefix("```json") if text.startswith("```json") else text.removeprefix("```")
    return text.removesuffix("```").strip()


OFFICIAL = Expectation(rows=5000)
HARD = Expectation(rows=1000)
CONSENSUS = Expectation(rows=3671)


class HealthBenchGold(Gold):
    """The rubric of a conversation, its example tags, and the physicians' reply where there is one."""

    rubrics: tuple[RubricItem, ...]
    example_tags: tuple[Text, ...]
    ideal_completions: dict[str, JsonValue] | None = None


class _Row(FileRow):
    prompt_id: Text = Field(min_length=1)
    prompt: tuple[ChatTurn, ...] = Field(min_length=1)
    rubrics: tuple[RubricItem, ...]
    example_tags: tuple[Text, ...]
    ideal_completions_data: dict[str, JsonValue] | None = None
    canary: Text | None = None


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[HealthBenchGold]:
    """Conversations for the agent; rubrics, tags and ideal replies in the gold."""
    rows = [read_row(place, _Row) for place in json_lines(path)]
    examples = [
        Example(id=row.prompt_id, prompt_text=render_conversation(row.prompt), turns=row.prompt) for row in rows
    ]
    gold = [
        HealthBenchGold(
            id=row.prompt_id,
            canary=row.canary,
            rubrics=row.rubrics,
            example_tags=row.example_tags,
            ideal_completions=row.ideal_completions_data,
        )
        for row in rows
    ]
    return assemble(path, examples, gold=gold, expect=expect)


def render_conversation(turns: tuple[ChatTurn, ...]) -> str:
    """Turns as "role: content" with a blank line between; a single turn is its content alone."""
    if len(turns) == 1:
        return turns[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


BOOTSTRAP_SEED = 0
"""The official bootstrap is unseeded; ours of the same form is seeded, so that a report can be made again."""


class HealthBenchGrader:
    """Official, predecessor's and strict HealthBench."""

    is_binary = False

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "HealthBenchGrader":
        return cls(rules, JudgePrompts.read("healthbench"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One round: every item."""
        gold = case.gold_as(HealthBenchGold)
        conversation = self._conversation(case)
        replies = yield tuple(
            self._question(number, item, conversation=conversation) for number, item in enumerate(gold.rubrics)
        )
        return self._grade(gold, replies)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The official means, clipped after averaging; the predecessor's are not clipped."""
        examples = [dict(one.grade.metrics) for one in graded if one.grade.score is not None]
        if self._rules.mode is EvaluationMode.DRTULU:
            totals = drtulu_aggregate(examples)
        else:
            totals = official_aggregate(examples, rng=np.random.RandomState(BOOTSTRAP_SEED))
        return Totals("overall_score", {"overall_score": totals.score, **totals.metrics})

    def _conversation(self, case: Case) -> str:
        # The predecessor's judge sees the conversation flattened into one user turn.
        asked = (ChatTurn(role="user", content=case.example.prompt_text),)
        turns = asked if self._rules.mode is EvaluationMode.DRTULU else case.example.turns or asked
        said = [f"{turn.role}: {turn.content}" for turn in turns]
        return "\n\n".join((*said, f"assistant: {case.answer.text}"))

    def _question(self, number: int, item: RubricItem, *, conversation: str) -> GradingQuestion:
        return GradingQuestion(
            key=f"item-{number}",
            prompt=self._prompts.user("healthbench", conversation=conversation, criterion=item.for_judge()),
            system=self._prompts.system("healthbench"),
            tries=self._rules.tries,
            accepts=is_verdict,
        )

    def _grade(self, gold: HealthBenchGold, replies: Sequence[JudgeReplies]) -> Grade:
        worst_items = [strict_verdict(r[-1:], points=i.points) for i, r in zip(gold.rubrics, replies, strict=True)]
        worst = points_share(zip(gold.rubrics, worst_items, strict=True)) or 0.0
        unreadable = sum(len(each) - is_verdict(each[-1]) for each in replies)
        labels = {f"item-{n}": str(met) for n, met in enumerate(worst_items) if is_verdict(replies[n][-1])}
        try:
            scored = score_example(gold.rubrics, gold.example_tags, replies=[each[-1:] for each in replies])
        except ScoringError as refusal:
            if not self._rules.is_strict or points_share((i, True) for i in gold.rubrics) is None:
                return Grade(None, worst, refusal.reason, labels=labels, unreadable=unreadable)
            return Grade(worst, worst, metrics={"overall_score": worst}, labels=labels, unreadable=unreadable)
        metrics = scored.metrics
        return Grade(metrics["overall_score"], worst, metrics=metrics, labels=labels, unreadable=unreadable)


def is_verdict(reply: str) -> bool:
    """Whether the official parse reads a verdict; where it would stop the run, ours asks again."""
    try:
        return isinstance(parse_verdict(reply), bool)
    except ScoringError:
        return False


class HealthBenchExampleInput(RecordedInput):
    rubrics: tuple[RubricItem, ...]
    example_tags: tuple[Text, ...]
    judge_replies: tuple[tuple[Text, ...], ...]

    @model_validator(mode="after")
    def _one_list_of_replies_per_item(self) -> Self:
        if len(self.judge_replies) != len(self.rubrics):
            raise ValueError(f"{len(self.judge_replies)} lists of replies for {len(self.rubrics)} rubric items")
        return self


class HealthBenchAggregateInput(RecordedInput):
    per_example_metrics: tuple[dict[str, float], ...]
    numpy_global_seed: int
    bootstrap_draws: int = BOOTSTRAP_DRAWS


def recorded_score_example(case_input: CaseInput) -> object:
    case = HealthBenchExampleInput.read(case_input)
    score = score_example(case.rubrics, case.example_tags, replies=case.judge_replies)
    return {
        "metrics": score.metrics,
        "criteria_met": [item.met for item in score.items],
        "judge_calls_per_item": [item.judge_calls for item in score.items],
        "total_judge_calls": score.judge_calls,
    }


def recorded_score_example_as_inspect(case_input: CaseInput) -> object:
    case = HealthBenchExampleInput.read(case_input)
    met = [inspect_met(replies) for replies in case.judge_replies]
    return {"met": met, "healthbench_score": inspect_score(case.rubrics, met)}


def recorded_aggregate(case_input: CaseInput) -> object:
    case = HealthBenchAggregateInput.read(case_input)
    rng = np.random.RandomState(case.numpy_global_seed)
    examples = case.per_example_metrics
    return official_aggregate(examples, rng=rng, draws=case.bootstrap_draws)._asdict()


def recorded_aggregate_as_drtulu(case_input: CaseInput) -> object:
    return drtulu_aggregate(HealthBenchAggregateInput.read(case_input).per_example_metrics)._asdict()


def recorded_aggregate_as_inspect(case_input: CaseInput) -> object:
    case = HealthBenchAggregateInput.read(case_input)
    rng = np.random.default_rng(case.numpy_global_seed)
    examples = case.per_example_metrics
    return inspect_aggregate(examples, rng=rng, draws=case.bootstrap_draws)._asdict()


UNITS = {
    "example": Unit(recorded_score_example, {"inspect_evals_0.26.0": recorded_score_example_as_inspect}),
    "aggregate": Unit(
        recorded_aggregate,
        {
            "dr_tulu_aggregate_results_unclipped": recorded_aggregate_as_drtulu,
            "inspect_evals_calculate_final_score_default_rng(seed)": recorded_aggregate_as_inspect,
        },
    ),
}
