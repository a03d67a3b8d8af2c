"""DeepResearchBench FACT: whether the pages that a report cites support what it cites them for.

Facts are grouped by url, thinned by a judge, then validated page by page. Only results other than `unknown` from
pages validated without error count.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.replies import Replies
from rubricem_agent.evals.reply_json import Unparsed, drop_fence_marks, parse_json

MAX_TRIES = 3
LANGUAGES = ("zh", "en")


class FactScore(NamedTuple):
    """Counted and supported citations per citing task, and the share supported, pooled over all tasks."""

    avg_citations_per_task: float
    effective_citations: float
    citation_accuracy: float


class Validation(NamedTuple):
    """The judge's results for one url, indices from 0; with an error instead, the url is dropped."""

    results: list[dict[str, JsonValue]]
    error: str | None
    judge_calls: int


class Deduplication(NamedTuple):
    """The facts kept for each url."""

    facts_by_url: dict[str, list[str]]
    judge_calls: int


def score_records(records: Sequence[Mapping[str, JsonValue]]) -> FactScore:
    """Pooled over all records. A task without citations leaves the denominator.

    Nobody cites, or nothing but unknowns: ScoringError("ZeroDivisionError"), as the official division does.
    """
    citing = counted = supported = 0
    for record in records:
        if not _field(record, "citations"):
            continue
        citing += 1
        labels = _counted_labels(record)
        counted += len(labels)
        supported += labels.count("supported")
    if not citing:
        raise ScoringError("ZeroDivisionError", "no task has a citation")
    if not counted:
        raise ScoringError("ZeroDivisionError", "no citation was judged other than unknown")
    return FactScore(counted / citing, supported / citing, supported / counted)


def validate_url(
    facts: Sequence[str],
    *,
    reference: str | None,
    replies: Sequence[str],
    language: str | None,
    article_id: int | str | None,
) -> Validation:
    """Judge all facts of one url, up to three times. An empty page is judged; an absent one is an error without a call."""
    if reference is None:
        return Validation([], "no reference", 0)
    if not article_id or language not in LANGUAGES:
        return Validation([], f"language {language!r} of article {article_id!r} is not one of {LANGUAGES}", 0)
    judge = Replies(replies)
    results: list[dict[str, JsonValue]] | Unparsed = Unparsed("not asked")
    while judge.calls < MAX_TRIES:
        reply = judge.ask()
        results = Unparsed("the request failed") if reply is None else parse_validation(reply, num_facts=len(facts))
        if not isinstance(results, Unparsed):
            return Validation(results, None, judge.calls)
    return Validation([], results.reason if isinstance(results, Unparsed) else None, judge.calls)


def parse_validation(reply: str, *, num_facts: int) -> list[dict[str, JsonValue]] | Unparsed:
    """The results with their index counted from 0. Labels are not checked here: an unknown word counts as unsupported."""
    parsed = parse_json(drop_fence_marks(reply))
    if not isinstance(parsed, list):
        return parsed if isinstance(parsed, Unparsed) else Unparsed("the reply is not a JSON list")
    if len(parsed) != num_facts:
        return Unparsed(f"{len(parsed)} results for {num_facts} facts")
    results: list[dict[str, JsonValue]] = []
    for entry in parsed:
        number = entry.get("idx") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(number, int | float):
            return Unparsed("a result has no numeric idx")
        results.append({**entry, "idx": number - 1})
    return results


def deduplicate(facts_by_url: Sequence[tuple[str, Sequence[str]]], *, replies: Sequence[str]) -> Deduplication:
    """Keep the facts that the judge names, url by url; a url with one fact needs no judge."""
    groups: dict[str, list[str]] = {}
    for url, facts in facts_by_url:
        if facts:
            groups.setdefault(url, []).extend(facts)
    judge = Replies(replies)
    kept = {url: facts if len(facts) == 1 else _keep_named(facts, judge) for url, facts in groups.items()}
    return Deduplication(kept, judge.calls)


def _keep_named(facts: list[str], judge: Replies) -> list[str]:
    named: JsonValue | Unparsed = Unparsed("not asked")
    tries = 0
    while isinstance(named, Unparsed) and tries < MAX_TRIES:
        reply = judge.ask()
        named = Unparsed("the request failed") if reply is None else parse_json(drop_fence_marks(reply))
        tries += 1
    if isinstance(named, Unparsed) or not named:
        return facts
    if not isinstance(named, list | dict):
        raise ScoringError("TypeError", f"the judge named {named!r}, not a list", judge_calls=judge.calls)
    if 0 in named or len(named) > len(facts):
        return facts
    return [_fact_number(facts, number, judge=judge) for number in named]


def _fact_number(facts: Sequence[str], number: JsonValue, *, judge: Replies) -> str:
    if not isinstance(number, int):
        raise ScoringError("TypeError", f"the judge named fact {number!r}, not a number", judge_calls=judge.calls)
    position = number - 1
    # Negative numbers count from the end and a repeated one repeats its fact: the official list access allows both.
    if not -len(facts) <= position < len(facts):
        reason = f"the judge named fact {number} of {len(facts)}"
        raise ScoringError("IndexError", reason, judge_calls=judge.calls)
    return facts[position]


def _counted_labels(record: Mapping[str, JsonValue]) -> list[JsonValue]:
    pages = _field(record, "citations_deduped")
    if not isinstance(pages, dict):
        raise ScoringError("AttributeError", f"citations_deduped is {type(pages).__name__}, not an object by url")
    labels: list[JsonValue] = []
    for page in pages.values():
        if _field(page, "validate_error") is None:
            results = _field(page, "validate_res")
            if not isinstance(results, list):
                raise ScoringError("TypeError", f"validate_res is {type(results).__name__}, not a list")
            labels.extend(_field(result, "result") for result in results)
    return [label for label in labels if label != "unknown"]


def _field(record: JsonValue | Mapping[str, JsonValue], name: str) -> JsonValue:
    if not isinstance(record, Mapping):
        raise ScoringError("TypeError", f"{record!r} has no field {name}")
    if name not in record:
        raise ScoringError("KeyError", f"a record has no field {name}")
    return record[name]
