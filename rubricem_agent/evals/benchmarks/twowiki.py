"""2WikiMultihopQA: exact match and token F1 (v1.1), and DR Tulu's judged protocol.

Data files are the official JSON array or DR Tulu's JSON Lines.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import Field

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_agent.evals.files import assemble, json_array, load_short_form, read_row, read_utf8
from rubricem_agent.evals.grading import Case, Grade, Grader, Grading, mean_metrics
from rubricem_agent.evals.rules import GPT, SHORT_GUIDANCE, Rules, drtulu_rules, official_rules
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import AnswerFormat

CLOSED_ANSWERS = ("yes", "no", "noanswer")

PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERDICT = re.compile(r"correct:\s*(yes|no)", re.IGNORECASE)

Overlap = tuple[float, float, float]
"""F1, precision and recall of shared tokens."""
NO_OVERLAP: Overlap = (0.0, 0.0, 0.0)
EvidenceTriple = tuple[Text, Text, Text]
"""Subject, relation and object, as texts or as Wikidata ids."""
SupportingFact = tuple[Text, int | Text]
"""The title of an article and the number of the sentence in it."""


class TwoWikiGold(Gold):
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


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """The official array, or DR Tulu's lines, identified by the first character.

    No official row count or hash is known of the array.
    """
    path = required(paths.path, "the benchmark twowiki")
    if not read_utf8(path).lstrip().startswith("["):
        return load_short_form(path, any_version=any_version, num_rows=1000)
    elements = json_array(path)
    rows = [read_row(element, TwoWikiGold) for element in elements]
    examples = [Example(id=row.id, prompt_text=row.question) for row in rows if row.question]
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
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


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
        raise ScoringError("ValueError", "there is no gold answer")
    return max(scores)


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


BENCHMARK = Benchmark(
    name="twowiki",
    title="2Wiki",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=make_grader,
    official=official_rules(""),
    drtulu=drtulu_rules(official_rules(GPT, tries=1), max_output_tokens=1000),
    hub="github.com/Alab-NII/2wikimultihop",
    guidance=SHORT_GUIDANCE,
    ids="_id of the official file; row numbers from 0 of DR Tulu's",
)
