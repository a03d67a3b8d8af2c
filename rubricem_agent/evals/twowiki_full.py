"""2WikiMultihopQA v1.1 over a whole prediction file: answers, supporting facts, evidence, and the joint scores.

The denominator is all gold questions: a missing prediction scores 0. Percent, two decimals.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ConfigDict

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.twowiki import AnswerScore, harmonic_mean, score_answer
from rubricem_agent.evals.twowiki_evidence import EvidenceTriple, alternatives, score_evidence
from rubricem_env.domain.base import Frozen, Text

SupportingFact = tuple[Text, int | Text]
Aliases = Mapping[str, frozenset[str]]
"""Wikidata id to other names, demonyms included."""

NO_SCORE = AnswerScore(0.0, 0.0, 0.0, 0.0)

_MEASURES = ("em", "f1", "prec", "recall")


class GoldQuestion(Frozen):
    """The gold side of one question."""

    model_config = ConfigDict(extra="ignore")

    id: Text
    answer: Text
    answer_id: Text | None
    supporting_facts: tuple[SupportingFact, ...]
    evidences: tuple[EvidenceTriple, ...]
    evidences_id: tuple[EvidenceTriple, ...]


class Predictions(Frozen):
    """A prediction file: answers, supporting facts and evidence by question id."""

    model_config = ConfigDict(extra="ignore")

    answer: dict[str, Text]
    sp: dict[str, tuple[SupportingFact, ...]]
    evidence: dict[str, tuple[tuple[Text, ...], ...]]


class FullScore(NamedTuple):
    """The sixteen official numbers and one warning for each missing part."""

    metrics: dict[str, float]
    warnings: tuple[str, ...]


def score_predictions(predictions: Predictions, gold: Sequence[GoldQuestion], *, aliases: Aliases) -> FullScore:
    """All official metrics. A question joins the joint scores only where all three parts are predicted."""
    if not gold:
        raise ScoringError("ZeroDivisionError", "there is no gold question")
    totals: dict[str, float] = dict.fromkeys((p + m for p in ("", "sp_", "evi_", "joint_") for m in _MEASURES), 0.0)
    warnings: list[str] = []
    for question in gold:
        parts = _score_question(question, predictions, aliases=aliases)
        warnings.extend(f"missing {part} {question.id}" for part, score in parts.items() if score is None)
        answer, facts, evidence = parts.values()
        for prefix, score in (("", answer), ("sp_", facts), ("evi_", evidence), ("joint_", _joint(parts))):
            for measure, value in zip(_MEASURES, score or NO_SCORE, strict=True):
                totals[prefix + measure] += value
    return FullScore({name: round(total / len(gold) * 100, 2) for name, total in totals.items()}, tuple(warnings))


def score_supporting_facts(predicted: Sequence[SupportingFact], gold: Sequence[SupportingFact]) -> AnswerScore:
    """Set overlap of (title, sentence) pairs.

    Repeats are dropped before titles lose their case, as officially: one fact in two spellings counts twice.
    """
    guesses = [(title.lower(), sentence) for title, sentence in set(predicted)]
    wanted = [(title.lower(), sentence) for title, sentence in set(gold)]
    hits = sum(guess in wanted for guess in guesses)
    missed = sum(fact not in guesses for fact in wanted)
    precision = hits / len(guesses) if guesses else 0.0
    recall = hits / (hits + missed) if hits + missed else 0.0
    exact = float(hits == len(guesses) and not missed)
    return AnswerScore(exact, harmonic_mean(precision, recall), precision, recall)


def joint_score(answer: AnswerScore, facts: AnswerScore, *, evidence: AnswerScore) -> AnswerScore:
    """The products of the three; the joint F1 comes from the joint precision and recall."""
    precision = answer.prec * facts.prec * evidence.prec
    recall = answer.recall * facts.recall * evidence.recall
    exact = answer.em * facts.em * evidence.em
    return AnswerScore(exact, harmonic_mean(precision, recall), precision, recall)


def _joint(parts: Mapping[str, AnswerScore | None]) -> AnswerScore | None:
    answer, facts, evidence = parts.values()
    if answer is None or facts is None or evidence is None:
        return None
    return joint_score(answer, facts, evidence=evidence)


def _score_question(
    question: GoldQuestion, predictions: Predictions, *, aliases: Aliases
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
