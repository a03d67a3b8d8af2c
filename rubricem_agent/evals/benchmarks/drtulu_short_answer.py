"""DR Tulu's judge of short answers, and its own exact match and F1.

2WikiMultihopQA and WebWalkerQA share this protocol.
"""

import re

from rubricem_agent.evals.benchmarks.answer_overlap import normalize_answer, token_overlap
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.reply_parsing import Unparsed, read_choice
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text
from rubricem_records.evaluations.rules import Rules

_VERDICT = re.compile(r"correct:\s*(yes|no)", re.IGNORECASE)


def read_correct(reply: str) -> bool | Unparsed:
    """Whether the last line says "correct: yes" or "correct: no"."""
    said = read_choice(reply, "correct", ("yes", "no"))
    return said if isinstance(said, Unparsed) else said == "yes"


def judge_says_correct(reply: str) -> bool:
    """DR Tulu's own parse, for recorded verdicts: the first "correct: yes|no" in any case.

    A reply without one counts as wrong. The pattern also matches inside "incorrect: yes", which therefore reads as
    correct.
    """
    match = _VERDICT.search(reply)
    return match is not None and match.group(1).lower() == "yes"


def drtulu_exact(prediction: Text, gold_answers: tuple[Text, ...]) -> bool:
    """DR Tulu's exact match, after removing its own "Exact Answer: " label."""
    predicted = normalize_answer(prediction.replace("Exact Answer: ", "").strip())
    return any(normalize_answer(gold) == predicted for gold in gold_answers)


def drtulu_f1(prediction: Text, gold_answers: tuple[Text, ...]) -> float:
    """DR Tulu's F1: no special case for yes and no, and the label stays in."""
    scores = [token_overlap(prediction, gold).f1 for gold in gold_answers]
    if not scores:
        raise ScoringError("ValueError", "there is no gold answer")
    return max(scores)


def yes_no_grade(case: Case, grader: Grader) -> Asking[Grade]:
    """DR Tulu's judge for short answers: one question. Its own exact match and F1 are reported beside the verdict.

    A reply without a verdict has no grade; DR Tulu counts it as wrong.
    """
    golds = case.gold.accepted_answers()
    question = grader.question(
        "grade",
        "short_answer",
        parse=read_correct,
        question=case.example.prompt_text,
        response=case.answer.text,
        gold=" / ".join(golds),
    )
    (is_correct,) = yield (question,)
    if isinstance(is_correct, Unparsed):
        return grader.excluded("the judge gave no verdict")
    correct = float(is_correct)
    return Grade(
        correct,
        correct,
        metrics={"em": float(drtulu_exact(case.answer.text, golds)), "f1": drtulu_f1(case.answer.text, golds)},
        labels={"grade": "yes" if correct else "no"},
    )


def yes_no_grader(rules: Rules) -> Grader:
    """DR Tulu's judge of 2WikiMultihopQA and WebWalkerQA."""
    return Grader(rules, yes_no_grade, "accuracy", prompts=("short_answer",), is_binary=True)
