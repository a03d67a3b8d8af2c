"""Recorded predictions of 2WikiMultihopQA: whole prediction files by the official script, and DR Tulu's verdicts.

A prediction file is scored on answers, supporting facts, evidence triples (any alias of an entity is as good as its
name) and jointly. The denominator is all gold questions: a missing prediction scores 0.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from rubricem_agent.evals.benchmarks.answer_overlap import (
    NO_SCORE,
    PUNCTUATION,
    AnswerScore,
    harmonic_mean,
    score_answer,
)
from rubricem_agent.evals.benchmarks.drtulu_short_answer import drtulu_exact, drtulu_f1, judge_says_correct
from rubricem_agent.evals.benchmarks.twowiki import EvidenceTriple, SupportingFact, TwoWikiGold
from rubricem_agent.evals.files import FileRow
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text

Aliases = Mapping[str, frozenset[str]]
"""Wikidata id to other names, demonyms included."""


class Predictions(FileRow):
    """A prediction file: answers, supporting facts and evidence by question id."""

    answer: dict[str, Text]
    sp: dict[str, tuple[SupportingFact, ...]]
    evidence: dict[str, tuple[tuple[Text, ...], ...]]


def normalize_evidence(text: str) -> str:
    """Lower case, no ASCII punctuation, single spaces. Articles stay, unlike in answers."""
    return " ".join(text.lower().translate(PUNCTUATION).split())


def alternatives(
    evidences: Sequence[EvidenceTriple], ids: Sequence[EvidenceTriple], *, aliases: Aliases
) -> list[set[tuple[str, ...]]]:
    """For each gold triple every way to write it, normalised.

    Ids may be absent altogether; otherwise there must be one per triple with the same relation, or the official
    assertion fails.
    """
    if ids and len(ids) != len(evidences):
        raise ScoringError("AssertionError", f"{len(ids)} evidence ids for {len(evidences)} evidences")
    written: list[set[tuple[str, ...]]] = []
    for position, (subject, relation, target) in enumerate(evidences):
        subjects, targets = {subject}, {target}
        if ids:
            subject_id, relation_id, target_id = ids[position]
            if relation_id != relation:
                raise ScoringError("AssertionError", f"relation {relation!r} has the id {relation_id!r}")
            subjects |= aliases.get(subject_id, frozenset())
            targets |= aliases.get(target_id, frozenset())
        pairs = itertools.product(subjects, targets)
        written.append({tuple(map(normalize_evidence, (one, relation, other))) for one, other in pairs})
    return written


def score_evidence(predicted: Sequence[Sequence[str]], gold: Sequence[set[tuple[str, ...]]]) -> AnswerScore:
    """Predicted triples that match any gold triple, over the predicted and over the gold ones.

    Two spellings of one gold triple both count, so recall can exceed 1, as officially.
    """
    guesses = {tuple(map(normalize_evidence, triple)) for triple in predicted}
    hits = sum(any(guess in ways for ways in gold) for guess in guesses)
    return _score_hits(hits, len(guesses), wanted=len(gold))


def score_supporting_facts(predicted: Sequence[SupportingFact], gold: Sequence[SupportingFact]) -> AnswerScore:
    """Set overlap of (title, sentence) pairs.

    Repeats are dropped before titles lose their case, as officially: one fact in two spellings counts twice.
    """
    guesses = [(title.lower(), sentence) for title, sentence in set(predicted)]
    wanted = [(title.lower(), sentence) for title, sentence in set(gold)]
    hits = sum(guess in wanted for guess in guesses)
    missed = sum(fact not in guesses for fact in wanted)
    return _score_hits(hits, len(guesses), wanted=hits + missed)


def _score_hits(hits: int, predicted: int, *, wanted: int) -> AnswerScore:
    precision = hits / predicted if predicted else 0.0
    recall = hits / wanted if wanted else 0.0
    return AnswerScore(float(hits == predicted == wanted), harmonic_mean(precision, recall), precision, recall)


def joint_score(parts: Sequence[AnswerScore | None]) -> AnswerScore | None:
    """The products of answer, facts and evidence; the joint F1 comes from the joint precision and recall."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    exact, _, precision, recall = map(math.prod, zip(*known, strict=True))
    return AnswerScore(exact, harmonic_mean(precision, recall), precision, recall)


def score_predictions(
    predictions: Predictions, gold: Sequence[TwoWikiGold], *, aliases: Aliases
) -> tuple[dict[str, float], list[str]]:
    """The sixteen official numbers in percent with two decimals, and one warning for each missing part.

    A question enters the joint scores only where all three parts are predicted.
    """
    if not gold:
        raise ScoringError("ZeroDivisionError", "there is no gold question")
    prefixes = ("", "sp_", "evi_", "joint_")
    totals = {prefix + measure: 0.0 for prefix in prefixes for measure in AnswerScore._fields}
    warnings: list[str] = []
    for question in gold:
        parts = _score_question(question, predictions, aliases=aliases)
        warnings.extend(f"missing {part} {question.id}" for part, score in parts.items() if score is None)
        scores = list(parts.values())
        for prefix, score in zip(prefixes, (*scores, joint_score(scores)), strict=True):
            for measure, value in (score or NO_SCORE)._asdict().items():
                totals[prefix + measure] += value
    return {name: round(total / len(gold) * 100, 2) for name, total in totals.items()}, warnings


def _score_question(
    question: TwoWikiGold, predictions: Predictions, *, aliases: Aliases
) -> dict[str, AnswerScore | None]:
    """The three parts in official order, None where the prediction lacks one."""
    scores: dict[str, AnswerScore | None] = {"answer": None, "sp fact": None, "evidence": None}
    if question.id in predictions.answer:
        golds = {question.answer} | aliases.get(question.answer_id or "", frozenset())
        scores["answer"] = score_answer(predictions.answer[question.id], golds)
    if question.id in predictions.sp:
        scores["sp fact"] = score_supporting_facts(predictions.sp[question.id], question.supporting_facts)
    if question.id in predictions.evidence:
        gold = alternatives(question.evidences, question.evidences_id, aliases=aliases)
        scores["evidence"] = score_evidence(predictions.evidence[question.id], gold)
    return scores


class AliasLine(FileRow):
    """A line of the official alias file."""

    id: Text = Field(validation_alias="Q_id")
    aliases: tuple[Text, ...]
    demonyms: tuple[Text, ...]


def recorded_answer(prediction: Text, gold_answers: tuple[Text, ...]) -> object:
    return score_answer(prediction, gold_answers)._asdict()


def recorded_full(prediction: Predictions, gold: tuple[TwoWikiGold, ...], id_aliases: tuple[AliasLine, ...]) -> object:
    aliases = {line.id: frozenset((*line.aliases, *line.demonyms)) for line in id_aliases}
    metrics, warnings = score_predictions(prediction, gold, aliases=aliases)
    return {"metrics": metrics, "warnings": warnings}


def recorded_judge_by_drtulu(judge_text: Text | None) -> object:
    return {"is_correct": judge_says_correct(judge_text or "")}


UNITS = {
    "answer": Unit(recorded_answer, {"dr_tulu_exact": drtulu_exact, "dr_tulu_f1": drtulu_f1}),
    "full": Unit(recorded_full),
    "dr_tulu_judge": Unit(recorded_judge_by_drtulu),
}
