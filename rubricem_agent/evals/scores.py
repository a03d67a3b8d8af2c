"""The numbers of a run as they are kept and shown: every one with its mode, its size and its uncertainty.

The published rows that a report prints beside ours, in percent, with their sources and flags.

Every number of a run, computed from its logs: no judge, no network, the same result every time.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import combinations
from typing import NamedTuple

import numpy as np
from pydantic import JsonValue

from rubricem_agent.evals.grading import (
    Grade,
    GradedExample,
    GradingQuestion,
    JudgeReplies,
    MissingReplyError,
    Responder,
    replay,
)
from rubricem_agent.evals.manifest import EvaluationManifest
from rubricem_agent.evals.records import AnswerRecord, CaseKey, Journal, ModelCost, VerdictRecord, costs_of
from rubricem_agent.evals.runner import PAGES, case_keys, case_of, verdict_key
from rubricem_agent.evals.statistics import (
    DRAWS,
    bootstrap_mean,
    clustered_bootstrap_mean,
    cohens_kappa,
    epoch_variance,
    wilson_interval,
)
from rubricem_agent.evals.suite import Loaded
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import query_key

SCORES_VERSION = 1


class MeanInterval(Frozen):
    """How sure a mean is."""

    low: float
    high: float
    stderr: float
    n: int
    method: Text
    """Such as "bootstrap over 100 prompts, 1000 draws, 95 %"."""


class JudgeScores(Frozen):
    """The numbers by one judge. All between 0 and 1 where the benchmark is; a report shows them times 100."""

    judge: Text
    headline: Text
    score: float | None
    """None where nothing could be scored."""
    worst: float | None
    """The mean if every exclusion and every unreadable verdict counted as the worst case."""
    spread: MeanInterval | None
    wilson: MeanInterval | None
    """For scores of 0 and 1 alone, and one epoch: repeats of an example are not independent."""
    metrics: dict[str, float | None]
    texts: dict[str, Text]
    per_example: dict[str, float]
    """Mean over the epochs, by example id: what two runs are compared on."""
    graded: int
    excluded: dict[str, int]
    """Left out by the mode's own rule, by reason."""
    ungraded: dict[str, int]
    """Outages, by reason: never a score. With any, the run is incomplete."""
    unreadable: int
    """Replies of the judge that no verdict could be read from."""


class JudgeAgreement(Frozen):
    """Two judges on the same questions."""

    first: Text
    second: Text
    n: int
    share: float
    kappa: float


class EpochVariance(Frozen):
    """Where the variance of repeated runs comes from."""

    between: float
    within: float


class Scores(Frozen):
    """Everything that is known of a run."""

    version: int = SCORES_VERSION
    manifest: EvaluationManifest
    judges: tuple[JudgeScores, ...]
    agreements: tuple[JudgeAgreement, ...] = ()
    variance: EpochVariance | None = None
    expected: int
    """Examples times epochs."""
    answered: int
    failures: dict[str, int]
    """Attempts that failed on the way, by reason."""
    found: dict[str, int]
    """How the answers were found."""
    endings: dict[str, int]
    costs: tuple[ModelCost, ...]
    seconds: float
    """Of all attempts and verdicts together, as if one had followed the other."""

    @property
    def is_complete(self) -> bool:
        """Whether every example has an answer, and every answer a grade by every judge."""
        return self.answered == self.expected and not any(judge.ungraded for judge in self.judges)

    @property
    def headline(self) -> JudgeScores:
        """The numbers of the first judge."""
        return self.judges[0]

    @property
    def dollars(self) -> float:
        return sum(cost.dollars for cost in self.costs)


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reasons with how often each was given, the most frequent first."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def reference_rows() -> dict[str, JsonValue]:
    """All tables by name. Each has a `source`; most have `columns`, and `rows` by system with null for unpublished."""
    text = resources.files("rubricem_agent.evals").joinpath("reference_rows.json").read_text(encoding="utf-8")
    tables: dict[str, JsonValue] = json.loads(text)
    return tables


NO_JUDGE = "none"


class Logs(NamedTuple):
    """What a run has written so far."""

    answers: Journal[AnswerRecord]
    verdicts: Journal[VerdictRecord]


class _Graded(NamedTuple):
    """The grades by one judge, sorted, and why the others are not there."""

    examples: tuple[GradedExample, ...]
    ungraded: Mapping[CaseKey, str]


def score_run(loaded: Loaded, manifest: EvaluationManifest, *, logs: Logs) -> Scores:
    """All numbers of a run, finished or not."""
    keys = case_keys(manifest.inputs.ids, manifest.epochs)
    records = [record for key in sorted(keys) if (record := logs.answers.find(key)) is not None]
    final = [record for record in records if record.is_final]
    by_judge = {
        judge: _grade_all(loaded, final, verdicts=logs.verdicts, judge=judge)
        for judge in manifest.judges or (NO_JUDGE,)
    }
    judges = tuple(_judge_scores(loaded, manifest, judge=judge, graded=graded) for judge, graded in by_judge.items())
    cases = [case_of(loaded, record).answer for record in final]
    return Scores(
        manifest=manifest,
        judges=judges,
        agreements=_agreements(by_judge),
        variance=_variance(next(iter(by_judge.values())), manifest.epochs),
        expected=len(keys),
        answered=len(final),
        failures=count_reasons(record.failure for record in records if record.failure),
        found=count_reasons(case.found.value for case in cases),
        endings=count_reasons(case.ending for case in cases if case.ending),
        costs=costs_of(logs.answers.records, logs.verdicts.records),
        seconds=sum(one.seconds for one in logs.answers.records) + sum(one.seconds for one in logs.verdicts.records),
    )


def _grade_all(
    loaded: Loaded, records: Sequence[AnswerRecord], *, verdicts: Journal[VerdictRecord], judge: str
) -> _Graded:
    graded: list[GradedExample] = []
    ungraded: dict[CaseKey, str] = {}
    for record in records:
        grade = _grade(loaded, record, verdicts=verdicts, judge=judge)
        if isinstance(grade, str):
            ungraded[record.key] = grade
        else:
            graded.append(GradedExample(record.id, record.epoch, grade))
    return _Graded(tuple(graded), ungraded)


def _grade(loaded: Loaded, record: AnswerRecord, *, verdicts: Journal[VerdictRecord], judge: str) -> Grade | str:
    """The grade, or why there is none."""

    def find(question: GradingQuestion) -> JudgeReplies | None:
        known = verdicts.find(verdict_key(record.key, _asked_of(judge, question), question=question))
        return known.replies if known is not None and known.is_final else None

    try:
        return replay(loaded.grader.grade(case_of(loaded, record)), find)
    except MissingReplyError as missing:
        known = verdicts.find(verdict_key(record.key, _asked_of(judge, missing.question), question=missing.question))
        return known.failure if known is not None else "not judged yet"


def _asked_of(judge: str, question: GradingQuestion) -> str:
    return PAGES if question.asked is Responder.PAGE else judge


def _judge_scores(loaded: Loaded, manifest: EvaluationManifest, *, judge: str, graded: _Graded) -> JudgeScores:
    totals = loaded.grader.total(graded.examples)
    scored = [one for one in graded.examples if one.grade.score is not None]
    reasons = (one.grade.excluded for one in graded.examples if one.grade.score is None)
    return JudgeScores(
        judge=judge,
        headline=totals.headline,
        score=totals.score,
        worst=_worst(loaded, graded.examples),
        spread=_spread(loaded, scored, seed=manifest.seed),
        wilson=_wilson(scored) if loaded.grader.is_binary and manifest.epochs == 1 else None,
        metrics=dict(totals.metrics),
        texts=dict(totals.texts),
        per_example=_per_example(scored),
        graded=len(scored),
        excluded=count_reasons(reasons),
        ungraded=count_reasons(graded.ungraded.values()),
        unreadable=sum(one.grade.unreadable for one in graded.examples),
    )


def _worst(loaded: Loaded, graded: Sequence[GradedExample]) -> float | None:
    if not graded:
        return None
    mean = sum(one.grade.worst for one in graded) / len(graded)
    return min(1.0, max(0.0, mean)) if loaded.rules.clips_mean else mean


def _spread(loaded: Loaded, scored: Sequence[GradedExample], *, seed: int) -> MeanInterval | None:
    """Bootstrap over prompts: epochs of one example, and rows that share a prompt, are drawn together."""
    if not scored:
        return None
    rng = np.random.default_rng(seed)
    values = [one.grade.score for one in scored if one.grade.score is not None]
    prompts = [query_key(loaded.example(one.id).prompt_text) for one in scored]
    num_prompts = len(set(prompts))
    if num_prompts == len(values):
        estimate = bootstrap_mean(values, rng=rng)
    else:
        estimate = clustered_bootstrap_mean(values, prompts, rng=rng)
    method = f"bootstrap over {num_prompts} prompts, {DRAWS} draws, 95 %"
    low, high = (_clipped(loaded, bound) for bound in (estimate.low, estimate.high))
    return MeanInterval(low=low, high=high, stderr=estimate.stderr, n=estimate.n, method=method)


def _clipped(loaded: Loaded, value: float) -> float:
    return min(1.0, max(0.0, value)) if loaded.rules.clips_mean else value


def _wilson(scored: Sequence[GradedExample]) -> MeanInterval | None:
    if not scored:
        return None
    successes, total = sum(one.grade.score == 1.0 for one in scored), len(scored)
    interval = wilson_interval(successes, total)
    share = successes / total
    stderr = float(np.sqrt(share * (1 - share) / total))
    return MeanInterval(low=interval.low, high=interval.high, stderr=stderr, n=total, method="Wilson, 95 %")


def _per_example(scored: Sequence[GradedExample]) -> dict[str, float]:
    by_id = _scores_by_id(scored)
    return {example_id: sum(values) / len(values) for example_id, values in by_id.items()}


def _scores_by_id(scored: Sequence[GradedExample]) -> dict[str, list[float]]:
    by_id: dict[str, list[float]] = {}
    for one in scored:
        if one.grade.score is not None:
            by_id.setdefault(one.id, []).append(one.grade.score)
    return by_id


def _variance(graded: _Graded, epochs: int) -> EpochVariance | None:
    by_id = _scores_by_id(graded.examples)
    if epochs == 1 or not by_id:
        return None
    return EpochVariance(**epoch_variance(by_id)._asdict())


def _agreements(by_judge: Mapping[str, _Graded]) -> tuple[JudgeAgreement, ...]:
    """Every pair of judges, on the questions that both answered readably."""
    labels = {judge: _labels(graded) for judge, graded in by_judge.items()}
    pairs = []
    for first, second in combinations(labels, 2):
        shared = sorted(labels[first].keys() & labels[second].keys())
        if shared:
            ours, theirs = ([labels[judge][key] for key in shared] for judge in (first, second))
            same = sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(shared)
            kappa = cohens_kappa(ours, theirs)
            pairs.append(JudgeAgreement(first=first, second=second, n=len(shared), share=same, kappa=kappa))
    return tuple(pairs)


def _labels(graded: _Graded) -> dict[tuple[str, int, str], str]:
    return {
        (one.id, one.epoch, question): label for one in graded.examples for question, label in one.grade.labels.items()
    }
