"""2WikiMultihopQA answers: exact match and token F1 (v1.1), and the judged protocol that the papers report.

Supporting facts, evidence and the joint scores are in `twowiki_full`.

2WikiMultihopQA evidence: (subject, relation, object) triples, any alias of an entity being as good as its name.

2WikiMultihopQA v1.1 over a whole prediction file: answers, supporting facts, evidence, and the joint scores.

The denominator is all gold questions: a missing prediction scores 0. Percent, two decimals.

2WikiMultihopQA files: the official JSON array, its alias lines, and prediction files.

Recorded 2WikiMultihopQA cases.

2WikiMultihopQA and WebWalkerQA: gold answers against a prediction, by string or by judge.
"""

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, Field, JsonValue

from rubricem_agent.evals.base import (
    Benchmark,
    CaseInput,
    Example,
    RecordedInput,
    Rules,
    ScoringError,
    ShortAnswerGold,
    Unit,
)
from rubricem_agent.evals.files import (
    UNCHECKED,
    Expectation,
    FileRow,
    RowPosition,
    assemble,
    json_array,
    json_lines,
    read_row,
)
from rubricem_agent.evals.grading import (
    Case,
    Grade,
    GradedExample,
    Grading,
    GradingQuestion,
    JudgePrompts,
    Totals,
    mean_metrics,
    mean_of,
    scores_of,
)
from rubricem_env.domain.base import Frozen, Text

CLOSED_ANSWERS = ("yes", "no", "noanswer")

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERDICT = re.compile(r"correct:\s*(yes|no)", re.IGNORECASE)


class AnswerScore(NamedTuple):
    """Each number is the best over the gold answers by itself: precision and recall may come from different ones."""

    em: float
    f1: float
    prec: float
    recall: float


class Overlap(NamedTuple):
    """Shared tokens between a prediction and one gold answer."""

    f1: float
    prec: float
    recall: float


NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_overlap(prediction: str, gold: str) -> Overlap:
    """Token precision, recall and F1 after normalisation; all 0 where no token is shared, even if both are empty."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    if not shared:
        return NO_OVERLAP
    precision, recall = shared / len(predicted), shared / len(wanted)
    return Overlap(harmonic_mean(precision, recall), precision, recall)


def harmonic_mean(precision: float, recall: float) -> float:
    """F1; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def answer_overlap(prediction: str, gold: str) -> Overlap:
    """As `token_overlap`, but yes, no and noanswer must match exactly."""
    predicted, wanted = normalize_answer(prediction), normalize_answer(gold)
    if predicted != wanted and (predicted in CLOSED_ANSWERS or wanted in CLOSED_ANSWERS):
        return NO_OVERLAP
    return token_overlap(prediction, gold)


def score_answer(prediction: str, golds: Iterable[str]) -> AnswerScore:
    """The best match over the gold answers; all 0 where there are none."""
    best = AnswerScore(0.0, 0.0, 0.0, 0.0)
    for gold in golds:
        overlap = answer_overlap(prediction, gold)
        exact = float(normalize_answer(prediction) == normalize_answer(gold))
        current = AnswerScore(exact, *overlap)
        best = AnswerScore(*(max(pair) for pair in zip(best, current, strict=True)))
    return best


def judge_says_correct(reply: str) -> bool:
    """The predecessor's verdict: the first "correct: yes|no" in any case. None at all is wrong.

    The pattern also matches inside "incorrect: yes", which therefore reads as correct.
    """
    match = _VERDICT.search(reply)
    return match is not None and match.group(1).lower() == "yes"


def drtulu_exact(prediction: str, golds: Iterable[str]) -> bool:
    """The predecessor's exact match, after taking off its own "Exact Answer: " label."""
    predicted = normalize_answer(prediction.replace("Exact Answer: ", "").strip())
    return any(normalize_answer(gold) == predicted for gold in golds)


def drtulu_f1(prediction: str, golds: Iterable[str]) -> float:
    """The predecessor's F1: no special case for yes and no, and the label stays in."""
    scores = [token_overlap(prediction, gold).f1 for gold in golds]
    if not scores:
        raise ScoringError("ValueError", "there is no gold answer")
    return max(scores)


EvidenceTriple = tuple[Text, Text, Text]


def normalize_evidence(text: str) -> str:
    """Lower case, no ASCII punctuation, single spaces. Articles stay, unlike in answers."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def alternatives(
    evidences: Sequence[EvidenceTriple], ids: Sequence[EvidenceTriple], *, aliases: Mapping[str, frozenset[str]]
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
    precision = hits / len(guesses) if guesses else 0.0
    recall = hits / len(gold) if gold else 0.0
    exact = float(hits == len(guesses) == len(gold))
    return AnswerScore(exact, harmonic_mean(precision, recall), precision, recall)


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


class TwoWikiGold(ShortAnswerGold):
    """The gold question with supporting facts and evidence, and the paragraphs that hold them."""

    question: GoldQuestion
    context: JsonValue

    def accepted_answers(self) -> tuple[str, ...]:
        return (self.question.answer,)


class _Row(FileRow):
    id: Text = Field(alias="_id", min_length=1)
    question: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    answer_id: Text | None = None
    context: JsonValue = None
    supporting_facts: tuple[tuple[Text, int], ...]
    evidences: tuple[tuple[Text, Text, Text], ...]
    evidences_id: tuple[tuple[Text, Text, Text], ...] = ()


class _AliasRow(FileRow):
    id: Text = Field(alias="Q_id")
    aliases: tuple[Text, ...]
    demonyms: tuple[Text, ...]


def load(path: Path, *, expect: Expectation = UNCHECKED) -> Benchmark[TwoWikiGold]:
    """Questions for the agent, without the paragraphs; the rest in the gold. No official row count or hash is known."""
    rows = [read_row(place, _Row) for place in json_array(path)]
    gold = [TwoWikiGold(id=row.id, question=_gold_question(row), context=row.context) for row in rows]
    return assemble(path, [Example(id=row.id, prompt_text=row.question) for row in rows], gold=gold, expect=expect)


def load_aliases(path: Path) -> Mapping[str, frozenset[str]]:
    """Other names, demonyms included, by Wikidata id."""
    rows = [read_row(place, _AliasRow) for place in json_lines(path)]
    return {row.id: frozenset((*row.aliases, *row.demonyms)) for row in rows}


def load_predictions(path: Path) -> Predictions:
    """A prediction file: one object with answer, sp and evidence."""
    first, *_ = json_lines(path)
    return read_row(RowPosition(str(path), first.content), Predictions)


def _gold_question(row: _Row) -> GoldQuestion:
    return GoldQuestion(
        id=row.id,
        answer=row.answer,
        answer_id=row.answer_id,
        supporting_facts=row.supporting_facts,
        evidences=row.evidences,
        evidences_id=row.evidences_id,
    )


class TwoWikiAnswerInput(RecordedInput):
    prediction: Text
    gold_answers: tuple[Text, ...]


class TwoWikiRecordedGold(RecordedInput):
    id: Text = Field(alias="_id")
    answer: Text
    answer_id: Text | None
    supporting_facts: tuple[SupportingFact, ...]
    evidences: tuple[tuple[Text, Text, Text], ...]
    evidences_id: tuple[tuple[Text, Text, Text], ...]


class TwoWikiAliasLine(RecordedInput):
    id: Text = Field(alias="Q_id")
    aliases: tuple[Text, ...]
    demonyms: tuple[Text, ...]


class TwoWikiFullInput(RecordedInput):
    prediction: Predictions
    gold: tuple[TwoWikiRecordedGold, ...]
    id_aliases: tuple[TwoWikiAliasLine, ...]


class TwoWikiJudgeInput(RecordedInput):
    judge_text: Text | None


def recorded_score_answer(case_input: CaseInput) -> object:
    case = TwoWikiAnswerInput.read(case_input)
    return score_answer(case.prediction, case.gold_answers)._asdict()


def recorded_exact_as_drtulu(case_input: CaseInput) -> object:
    case = TwoWikiAnswerInput.read(case_input)
    return drtulu_exact(case.prediction, case.gold_answers)


def recorded_f1_as_drtulu(case_input: CaseInput) -> object:
    case = TwoWikiAnswerInput.read(case_input)
    return drtulu_f1(case.prediction, case.gold_answers)


def recorded_score_full(case_input: CaseInput) -> object:
    case = TwoWikiFullInput.read(case_input)
    gold = [GoldQuestion(**question.model_dump()) for question in case.gold]
    aliases = {line.id: frozenset((*line.aliases, *line.demonyms)) for line in case.id_aliases}
    metrics, warnings = score_predictions(case.prediction, gold, aliases=aliases)
    return {"metrics": metrics, "warnings": list(warnings)}


def recorded_judge_as_drtulu(case_input: CaseInput) -> object:
    return {"is_correct": judge_says_correct(TwoWikiJudgeInput.read(case_input).judge_text or "")}


UNITS = {
    "answer": Unit(
        recorded_score_answer, {"dr_tulu_exact": recorded_exact_as_drtulu, "dr_tulu_f1": recorded_f1_as_drtulu}
    ),
    "full": Unit(recorded_score_full),
    "dr_tulu_judge": Unit(recorded_judge_as_drtulu),
}


GOLD_SEPARATOR = " / "


class ExactMatchGrader:
    """2WikiMultihopQA as its own scorer has it: exact match and token F1, no judge. The headline is exact match."""

    is_binary = True
    prompt_hash = ""

    def grade(self, case: Case) -> Grading:
        """Asks nothing."""
        score = score_answer(case.answer.text, case.gold_as(ShortAnswerGold).accepted_answers())
        yield ()
        return Grade(score.em, score.em, metrics=score._asdict())

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        return Totals("em", mean_metrics(graded) or {"em": None})


class YesNoGrader:
    """The predecessor's judge for short answers: the first "correct: yes|no" of the reply decides, none is wrong."""

    is_binary = True

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "YesNoGrader":
        return cls(rules, JudgePrompts.read("short_answer"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One question; the predecessor's own exact match and F1 stand beside the verdict."""
        golds = case.gold_as(ShortAnswerGold).accepted_answers()
        prompt = self._prompts.user(
            "short_answer",
            question=case.example.prompt_text,
            response=case.answer.text,
            gold=GOLD_SEPARATOR.join(golds),
        )
        ((reply,),) = yield (GradingQuestion("grade", prompt),)
        correct = float(judge_says_correct(reply))
        strings = {"em": float(drtulu_exact(case.answer.text, golds)), "f1": drtulu_f1(case.answer.text, golds)}
        return Grade(
            correct,
            correct,
            metrics=strings,
            labels={"grade": "yes" if correct else "no"},
            unreadable=int("correct:" not in reply.lower()),
        )

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        return Totals("accuracy", {"accuracy": mean_of(scores_of(graded)), **mean_metrics(graded)})
