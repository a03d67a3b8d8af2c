"""2WikiMultihopQA: exact match and token F1 (v1.1), its whole prediction files, and DR Tulu's judged protocol.

A prediction file is scored on answers, supporting facts, evidence triples (any alias of an entity is as good as its
name) and jointly. The denominator is all gold questions: a missing prediction scores 0. Data files are the official
JSON array or DR Tulu's JSON Lines.
"""

import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from rubricem_agent.evals import base
from rubricem_agent.evals.files import FileRow, assemble, json_array, load_short_form, read_row, read_utf8
from rubricem_agent.evals.grading import Benchmark, Case, Grade, Grader, Grading, mean_metrics
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluation_rules import Rules

CLOSED_ANSWERS = ("yes", "no", "noanswer")

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERDICT = re.compile(r"correct:\s*(yes|no)", re.IGNORECASE)

Overlap = tuple[float, float, float]
"""F1, precision and recall of shared tokens."""
NO_OVERLAP: Overlap = (0.0, 0.0, 0.0)
EvidenceTriple = tuple[Text, Text, Text]
SupportingFact = tuple[Text, int | Text]
Aliases = Mapping[str, frozenset[str]]
"""Wikidata id to other names, demonyms included."""


class TwoWikiGold(base.Gold):
    """A row of the official file; a recorded case has the gold side alone."""

    id: Text = Field(validation_alias="_id", min_length=1)
    question: Text | None = Field(default=None, min_length=1)
    answer: Text = Field(min_length=1)
    answer_id: Text | None = None
    supporting_facts: tuple[SupportingFact, ...]
    evidences: tuple[EvidenceTriple, ...]
    evidences_id: tuple[EvidenceTriple, ...] = ()

    def accepted_answers(self) -> tuple[str, ...]:
        return (self.answer,)


class Predictions(FileRow):
    """A prediction file: answers, supporting facts and evidence by question id."""

    answer: dict[str, Text]
    sp: dict[str, tuple[SupportingFact, ...]]
    evidence: dict[str, tuple[tuple[Text, ...], ...]]


def load(paths: base.DataPaths, *, any_version: bool = False) -> base.Dataset:
    """The official array, or DR Tulu's lines, identified by the first character.

    No official row count or hash is known of the array.
    """
    path = base.required(paths.path, "the benchmark twowiki")
    if not read_utf8(path).lstrip().startswith("["):
        return load_short_form(path, any_version=any_version, num_rows=1000)
    elements = json_array(path)
    rows = [read_row(element, TwoWikiGold) for element in elements]
    examples = [base.Example(id=row.id, prompt_text=row.question) for row in rows if row.question]
    for element, row in zip(elements, rows, strict=True):
        if row.question is None:
            raise FileFormatError(f"{element.where}: the field question is missing. Download the official file.")
    return assemble(path, examples, gold=rows)


class AnswerScore(NamedTuple):
    """Exact match, F1, precision and recall of an answer, a set of facts, or both."""

    em: float
    f1: float
    prec: float
    recall: float


NO_SCORE = AnswerScore(0.0, 0.0, 0.0, 0.0)


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalize_evidence(text: str) -> str:
    """Lower case, no ASCII punctuation, single spaces. Articles stay, unlike in answers."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def token_overlap(prediction: str, gold: str) -> Overlap:
    """Shared tokens after normalisation; all 0 where no token is shared, even if both are empty."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    if not shared:
        return NO_OVERLAP
    precision, recall = shared / len(predicted), shared / len(wanted)
    return harmonic_mean(precision, recall), precision, recall


def harmonic_mean(precision: float, recall: float) -> float:
    """F1; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def score_answer(prediction: str, golds: Iterable[str]) -> AnswerScore:
    """Each number is the best over the gold answers by itself: precision and recall may come from different ones.

    Yes, no and noanswer must match exactly.
    """
    best = NO_SCORE
    for gold in golds:
        predicted, wanted = normalize_answer(prediction), normalize_answer(gold)
        is_closed = predicted in CLOSED_ANSWERS or wanted in CLOSED_ANSWERS
        overlap = NO_OVERLAP if is_closed and predicted != wanted else token_overlap(prediction, gold)
        current = AnswerScore(float(predicted == wanted), *overlap)
        best = AnswerScore(*(max(pair) for pair in zip(best, current, strict=True)))
    return best


def judge_says_correct(reply: str) -> bool:
    """DR Tulu's verdict: the first "correct: yes|no" in any case; a reply without one counts as wrong.

    The pattern also matches inside "incorrect: yes", which therefore reads as correct.
    """
    match = _VERDICT.search(reply)
    return match is not None and match.group(1).lower() == "yes"


def drtulu_exact(prediction: Text, gold_answers: tuple[Text, ...]) -> bool:
    """DR Tulu's exact match, after removing its own "Exact Answer: " label."""
    predicted = normalize_answer(prediction.replace("Exact Answer: ", "").strip())
    return any(normalize_answer(gold) == predicted for gold in gold_answers)


def drtulu_f1(prediction: Text, gold_answers: tuple[Text, ...]) -> float:
    """DR Tulu's F1: no special case for yes and no, and the label stays in."""
    scores = [token_overlap(prediction, gold)[0] for gold in gold_answers]
    if not scores:
        raise base.ScoringError("ValueError", "there is no gold answer")
    return max(scores)


def alternatives(
    evidences: Sequence[EvidenceTriple], ids: Sequence[EvidenceTriple], *, aliases: Aliases
) -> list[set[tuple[str, ...]]]:
    """For each gold triple every way to write it, normalised.

    Ids may be absent altogether; otherwise there must be one per triple with the same relation, or the official
    assertion fails.
    """
    if ids and len(ids) != len(evidences):
        raise base.ScoringError("AssertionError", f"{len(ids)} evidence ids for {len(evidences)} evidences")
    written: list[set[tuple[str, ...]]] = []
    for position, (subject, relation, target) in enumerate(evidences):
        subjects, targets = {subject}, {target}
        if ids:
            subject_id, relation_id, target_id = ids[position]
            if relation_id != relation:
                raise base.ScoringError("AssertionError", f"relation {relation!r} has the id {relation_id!r}")
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
        raise base.ScoringError("ZeroDivisionError", "there is no gold question")
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


def exact_match_grade(case: Case, grader: Grader) -> Grading:
    """2WikiMultihopQA's own scorer: exact match (the headline) and token F1, no judge."""
    score = score_answer(case.answer.text, case.gold.accepted_answers())
    yield ()
    return Grade(score.em, score.em, metrics=score._asdict())


def yes_no_grade(case: Case, grader: Grader) -> Grading:
    """DR Tulu's judge for short answers: one question. Its own exact match and F1 are reported beside the verdict.

    A reply without a verdict has no grade; DR Tulu counts it as wrong.
    """
    golds = case.gold.accepted_answers()
    question, gold = case.example.prompt_text, " / ".join(golds)
    asked = grader.question("grade", "short_answer", question=question, response=case.answer.text, gold=gold)
    ((reply,),) = yield (asked,)
    if _VERDICT.search(reply) is None:
        return grader.excluded("the judge gave no verdict", unreadable=1)
    correct = float(judge_says_correct(reply))
    return Grade(
        correct,
        correct,
        metrics={"em": float(drtulu_exact(case.answer.text, golds)), "f1": drtulu_f1(case.answer.text, golds)},
        labels={"grade": "yes" if correct else "no"},
    )


def yes_no_grader(rules: Rules) -> Grader:
    """DR Tulu's judge of 2WikiMultihopQA and WebWalkerQA."""
    return Grader(rules, yes_no_grade, "accuracy", prompts=("short_answer",), is_binary=True)


def make_grader(rules: Rules) -> Grader:
    """The official strings, or DR Tulu's judge."""
    if rules.mode == "drtulu":
        return yes_no_grader(rules)
    return Grader(
        rules, exact_match_grade, "em", lambda grades, rules: mean_metrics(grades) or {"em": None}, is_binary=True
    )


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


BENCHMARK = Benchmark(
    name="twowiki",
    title="2Wiki",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=make_grader,
    official=base.official_rules(""),
    drtulu=base.drtulu_rules(base.official_rules(base.GPT, tries=1), max_output_tokens=1000),
    units={
        "twowiki": {
            "answer": {"official": recorded_answer, "dr_tulu_exact": drtulu_exact, "dr_tulu_f1": drtulu_f1},
            "full": {"official": recorded_full},
            "dr_tulu_judge": {"official": recorded_judge_by_drtulu},
        }
    },
    hub="github.com/Alab-NII/2wikimultihop",
    guidance=base.SHORT_GUIDANCE,
    ids="_id of the official file; row numbers from 0 of DR Tulu's",
)
