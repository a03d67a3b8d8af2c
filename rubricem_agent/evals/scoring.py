"""Computes every number of an evaluation from its logs: no judge, no network, the same result every time.

Each number comes with its mode, its size and its uncertainty.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import eq
from typing import NamedTuple

import numpy as np

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.case_judge import verdict_key
from rubricem_agent.evals.cases import case_keys, case_of
from rubricem_agent.evals.costs import costs_of
from rubricem_agent.evals.grading import Grade, GradingQuestion, JudgeReplies, replay
from rubricem_env.domain.trajectory import query_key
from rubricem_records.evaluations.logs import PAGES, AnswerRecord, CaseKey, VerdictRecord
from rubricem_records.evaluations.manifest import EvaluationManifest
from rubricem_records.evaluations.scores import NO_JUDGE, JudgeAgreement, JudgeScores, Scores
from rubricem_records.evaluations.statistics import (
    DRAWS,
    MeanInterval,
    bootstrap_mean,
    cohens_kappa,
    epoch_variance,
    wilson_interval,
)
from rubricem_records.files.journal import Journal


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """How often each reason occurs, the most frequent first."""
    return dict(sorted(Counter(reasons).items(), key=lambda entry: (-entry[1], entry[0])))


class EvaluationLogs(NamedTuple):
    """Both logs of a run."""

    answers: Journal[AnswerRecord]
    verdicts: Journal[VerdictRecord]


NEVER_ANSWERED = "the policy answered no example, so the numbers say nothing about its answers"

_Grades = dict[CaseKey, Grade]

_Outcomes = Mapping[CaseKey, Grade | str]
"""A grade, or why there is none."""


def score_run(loaded: Loaded, manifest: EvaluationManifest, *, logs: EvaluationLogs) -> Scores:
    """All numbers of a run, finished or not."""
    answers, verdicts = logs
    keys = case_keys(manifest.inputs.ids, manifest.epochs)
    records = [record for key in sorted(keys) if (record := answers.find(key)) is not None]
    final = [record for record in records if record.is_final]
    outcomes = {
        judge: {record.key: _grade(loaded, record, verdicts=verdicts, judge=judge) for record in final}
        for judge in manifest.judges or (NO_JUDGE,)
    }
    by_judge = {judge: _graded(each) for judge, each in outcomes.items()}
    judges = [
        _judge_scores(loaded, manifest, judge=judge, outcomes=each, verdicts=verdicts)
        for judge, each in outcomes.items()
    ]
    first = _scores_by_id(next(iter(by_judge.values())))
    cases = [case_of(loaded, record).answer for record in final]
    empty = [case for case in cases if case.has_none]
    warning = NEVER_ANSWERED if empty and len(empty) == len(cases) else ""
    return Scores(
        manifest=manifest.model_copy(update={"warning": warning}),
        judges=tuple(judges),
        agreements=tuple(_agreements(by_judge)),
        variance=epoch_variance(first) if manifest.epochs > 1 and first else None,
        expected=len(keys),
        answered=len(final),
        failures=count_reasons(record.failure for record in records if record.failure),
        found=count_reasons(case.found for case in cases),
        endings=count_reasons(case.ending for case in cases if case.ending),
        unanswered=count_reasons(case.ending or "given so" for case in empty),
        costs=costs_of(answers.records, verdicts.records),
        seconds=sum(answer.seconds for answer in answers.records)
        + sum(verdict.seconds for verdict in verdicts.records),
    )


def _grade(loaded: Loaded, record: AnswerRecord, *, verdicts: Journal[VerdictRecord], judge: str) -> Grade | str:
    """The grade, or why there is none."""

    def find(question: GradingQuestion) -> VerdictRecord | None:
        return verdicts.find(verdict_key(record.key, PAGES if question.is_page else judge, question=question))

    def replies(question: GradingQuestion) -> JudgeReplies | None:
        known = find(question)
        return known.verdicts if known is not None and known.is_final else None

    outcome = replay(loaded.grader.grade(case_of(loaded, record)), replies)
    if isinstance(outcome, Grade):
        return outcome
    known = find(outcome)
    return "not judged yet" if known is None else known.failure or "the reply is empty"


def _graded(outcomes: _Outcomes) -> _Grades:
    return {key: grade for key, grade in outcomes.items() if isinstance(grade, Grade)}


def _judge_scores(
    loaded: Loaded, manifest: EvaluationManifest, *, judge: str, outcomes: _Outcomes, verdicts: Journal[VerdictRecord]
) -> JudgeScores:
    grades = _graded(outcomes)
    grader = loaded.grader
    every = tuple(grades.values())
    read = (
        verdict
        for verdict in verdicts.records
        if verdict.judge == judge and verdict.is_final and verdict.key.case in grades
    )
    metrics = dict(grader.total(every))
    scores = _scores_by_id(grades)
    num_scored = sum(map(len, scores.values()))
    has_wilson = grader.is_binary and manifest.epochs == 1 and num_scored
    return JudgeScores(
        judge=judge,
        headline=grader.headline,
        score=metrics.get(grader.headline),
        worst=_clipped(loaded, sum(grade.worst for grade in every) / len(every)) if every else None,
        spread=_spread(loaded, scores, seed=manifest.seed) if num_scored else None,
        wilson=wilson_interval(sum(value == 1.0 for (value,) in scores.values()), num_scored) if has_wilson else None,
        metrics=metrics,
        texts=dict(grader.texts(every, loaded.rules)) if grader.texts is not None else {},
        per_example={example_id: sum(values) / len(values) for example_id, values in scores.items()},
        graded=num_scored,
        excluded=count_reasons(grade.excluded for grade in every if grade.score is None),
        ungraded=count_reasons(why for why in outcomes.values() if isinstance(why, str)),
        replies=sum(len(verdict.replies) for verdict in read),
        unreadable=sum(grade.unreadable for grade in every),
        read_differently=sum(grade.read_differently for grade in every),
    )


def _scores_by_id(grades: _Grades) -> dict[str, list[float]]:
    by_id: dict[str, list[float]] = {}
    for key, grade in grades.items():
        if grade.score is not None:
            by_id.setdefault(key.id, []).append(grade.score)
    return by_id


def _spread(loaded: Loaded, scores: Mapping[str, Sequence[float]], *, seed: int) -> MeanInterval:
    """Bootstrap over prompts: epochs of one example, and rows that share a prompt, are drawn together."""
    rng = np.random.default_rng(seed)
    values = [value for example_values in scores.values() for value in example_values]
    prompts = [query_key(loaded.example(each).prompt_text) for each, listed in scores.items() for _ in listed]
    estimate = bootstrap_mean(values, rng=rng, clusters=prompts)
    return estimate.model_copy(
        update={
            "low": _clipped(loaded, estimate.low),
            "high": _clipped(loaded, estimate.high),
            "method": f"bootstrap over {len(set(prompts))} prompts, {DRAWS} draws, 95 %",
        }
    )


def _clipped(loaded: Loaded, value: float) -> float:
    return min(1.0, max(0.0, value)) if loaded.rules.clips_mean else value


Labels = Mapping[tuple[CaseKey, str], str]
"""What a judge said, by answer and question."""


def labels_of(grades: _Grades) -> Labels:
    """All labels of the grades."""
    return {(key, question): label for key, grade in grades.items() for question, label in grade.labels.items()}


def read_labels(loaded: Loaded, judge: str, *, logs: EvaluationLogs) -> Labels:
    """What a judge has said in a run so far."""
    answers, verdicts = logs
    final = (record for record in answers.records if record.is_final)
    return labels_of(_graded({record.key: _grade(loaded, record, verdicts=verdicts, judge=judge) for record in final}))


def agree(ours: Labels, theirs: Labels) -> tuple[list[str], list[str], list[str]]:
    """Both judges' labels on the questions that both answered readably, and the id of the example of each."""
    shared = sorted(ours.keys() & theirs.keys())
    return [ours[key] for key in shared], [theirs[key] for key in shared], [key.id for key, _ in shared]


def _agreements(by_judge: Mapping[str, _Grades]) -> Iterator[JudgeAgreement]:
    """Every pair of judges, on the questions that both answered readably."""
    for first, second in combinations(by_judge, 2):
        ours, theirs, _ = agree(labels_of(by_judge[first]), labels_of(by_judge[second]))
        if ours:
            same = sum(map(eq, ours, theirs)) / len(ours)
            kappa = cohens_kappa(ours, theirs)
            yield JudgeAgreement(first=first, second=second, n=len(ours), share=same, kappa=kappa)
