"""BrowseComp-Plus: hard questions over a fixed corpus, so that retrieval can be repeated and be scored by itself.

A judge says whether the final answer means the gold answer. Accuracy is over all questions: officially an unfinished
answer and a verdict that cannot be read count as wrong; here the latter leaves the mean, as in every benchmark. Recall
is the share of the evidence documents that tools showed. The file is what the official script decrypts; the corpus is
built with `rubricem corpus build`, whose results carry the `docid` in their id or url.
"""

import re
from typing import NamedTuple

from pydantic import Field

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import FileRow, RowId, json_lines, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.reply_parsing import NO_VERDICT, Unparsed, read_choice
from rubricem_agent.evals.rules import SHORT_GUIDANCE, official_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.rollouts.snippet_sources import shown_sources


class EvidenceDocument(FileRow):
    """A document of the corpus that answers part of the question."""

    docid: RowId
    url: Text = ""


class BrowseCompGold(Gold):
    """A row of the decrypted file. Its other documents, gold and negative, are in the corpus."""

    id: RowId = Field(validation_alias="query_id")
    query: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    evidence_docs: tuple[EvidenceDocument, ...] = ()


load = rows_loader("browsecomp_plus", json_lines, BrowseCompGold, prompt=lambda row: row.query, num_rows=830)


def _field(reply: str, name: str, value: str) -> str | None:
    """The first field of that name; one in bold comes before a plain one."""
    for form in (rf"\*\*{name}:\*\*\s*", rf"\*\*{name}\*\*:\s*", rf"{name}:\s*"):
        match = re.search(form + value, reply, re.IGNORECASE)
        if match:
            return match.group(1)
    return None


class JudgeReply(NamedTuple):
    """What the judge says of one answer; None where the reply does not say it."""

    is_correct: bool | None
    confidence: float | None
    """The confidence of the answer in percent, at most 100."""


_CONFIDENCE = re.compile(r"^[\s*-]*confidence[\s*]*:[\s*]*(.*?)[\s*.]*$", re.IGNORECASE | re.MULTILINE)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*\|?\\?%?\|?", re.ASCII)
"""A percentage, also as the official prompt writes it: 100|\\%|."""


def read_reply(reply: str) -> JudgeReply | Unparsed:
    """The last lines of a reply: `correct`, and `confidence`, which may be missing but not out of its range."""
    correct = read_choice(reply, "correct", ("yes", "no"), followed_by=("confidence",))
    if isinstance(correct, Unparsed):
        return correct
    said = [_PERCENT.fullmatch(each) for each in _CONFIDENCE.findall(reply)]
    confidences = [float(each[1]) for each in said if each is not None]
    if len(said) > 1 or len(confidences) < len(said) or any(confidence > 100 for confidence in confidences):
        return Unparsed("confidence is not one number from 0 to 100")
    return JudgeReply(correct == "yes", confidences[0] if confidences else None)


def parse_reply(reply: str) -> JudgeReply:
    """The official parse of the fields `correct` and `confidence`."""
    correct = _field(reply, "correct", "(yes|no)")
    confidence = _field(reply, "confidence", r"(\d+(?:\.\d+)?)\s*%?")
    return JudgeReply(
        is_correct=None if correct is None else correct.lower() == "yes",
        confidence=None if confidence is None else min(100.0, float(confidence)),
    )


def evidence_recall(case: Case) -> float | None:
    """The share of evidence documents that tools showed; None without a trajectory or evidence."""
    evidence = case.gold_as(BrowseCompGold).evidence_docs
    if case.trajectory is None or not evidence:
        return None
    sources = shown_sources(case.trajectory)
    shown = {*sources, *(source.url for source in sources.values())}
    is_shown = [bool({document.docid, document.url} - {""} & shown) for document in evidence]
    return sum(is_shown) / len(evidence)


def _parse_officially(reply: str) -> JudgeReply | Unparsed:
    verdict = parse_reply(reply)
    return NO_VERDICT if verdict.is_correct is None else verdict


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One question; an answer that is not there is wrong."""
    recall = evidence_recall(case)
    metrics = {} if recall is None else {"evidence_recall": recall}
    if case.answer.is_empty:
        return Grade(0.0, 0.0, metrics=metrics)
    question = grader.question(
        "grade",
        "browsecomp_plus",
        parse=read_reply,
        official_parse=_parse_officially,
        question=case.example.prompt_text,
        response=case.answer.text,
        gold=case.gold_as(BrowseCompGold).answer,
    )
    (verdict,) = yield (question,)
    if isinstance(verdict, Unparsed):
        return grader.excluded("the judge gave no verdict")
    if verdict.confidence is not None:
        metrics["confidence"] = verdict.confidence / 100
    score = float(verdict.is_correct)
    return Grade(score, score, metrics=metrics, labels={"grade": "yes" if verdict.is_correct else "no"})


BENCHMARK = Benchmark(
    name="browsecomp_plus",
    title="BrowseComp-Plus",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=lambda rules: Grader(rules, grade, "accuracy", prompts=("browsecomp_plus",), is_binary=True),
    official=official_rules("Qwen/Qwen3-32B", temperature=0.7, tries=1, max_output_tokens=4096),
    searches=("index", "tool server", "record"),
    hub=(
        "huggingface.co/datasets/Tevatron/browsecomp-plus, "
        "decrypted by the script of github.com/texttron/BrowseComp-Plus"
    ),
    guidance=SHORT_GUIDANCE,
    ids="query_id of the data file",
)
