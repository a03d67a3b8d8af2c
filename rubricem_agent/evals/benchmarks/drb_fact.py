"""DeepResearchBench FACT: whether the pages that a report cites support what it cites them for.

Facts are grouped by url, deduplicated by a judge, then validated page by page. Only results other than `unknown` from
pages validated without error count. `drb` grades with it where FACT is requested.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from rubricem_agent.evals.grading import Asking, Case, Grade, Grader, GradingQuestion, numbered
from rubricem_agent.evals.reply_parsing import Unparsed, drop_fence_marks, parse_json, read_value
from rubricem_agent.evals.scoring_error import ScoringError, official_field
from rubricem_env.domain.base import Frozen
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.rollouts.snippet_sources import shown_sources, snippet_texts

MAX_TRIES = 3
PAGE_LIMIT = 100_000
"""Characters of a page that the judge reads."""

Validation = list[dict[str, JsonValue]] | Unparsed
"""The judge's results for one url, indices from 0; without them the url is dropped."""
FactsByUrl = dict[str, list[str]]


def score_records(records: Sequence[Mapping[str, JsonValue]]) -> dict[str, float]:
    """Counted and supported citations per citing task, and the share supported, pooled over all records.

    A task without citations leaves the denominator. Nobody cites, or nothing but unknowns:
    ScoringError("ZeroDivisionError"), as the official division does.
    """
    citing = counted = supported = 0
    for record in records:
        if not official_field(record, "citations"):
            continue
        citing += 1
        labels = _counted_labels(record)
        counted += len(labels)
        supported += labels.count("supported")
    if not citing:
        raise ScoringError("ZeroDivisionError", "no task has a citation")
    if not counted:
        raise ScoringError("ZeroDivisionError", "no citation was judged other than unknown")
    return {
        "avg_citations_per_task": counted / citing,
        "effective_citations": supported / citing,
        "citation_accuracy": supported / counted,
    }


def _counted_labels(record: Mapping[str, JsonValue]) -> list[JsonValue]:
    pages = official_field(record, "citations_deduped")
    if not isinstance(pages, dict):
        raise ScoringError("AttributeError", f"citations_deduped is {type(pages).__name__}, not an object by url")
    labels: list[JsonValue] = []
    for page in pages.values():
        if official_field(page, "validate_error") is None:
            results = official_field(page, "validate_res")
            if not isinstance(results, list):
                raise ScoringError("TypeError", f"validate_res is {type(results).__name__}, not a list")
            labels.extend(official_field(result, "result") for result in results)
    return [label for label in labels if label != "unknown"]


def fact_totals(grades: Sequence[Grade]) -> dict[str, float | None]:
    """The pooled numbers of the graded tasks; None where nothing can be divided, empty where FACT was not requested."""
    records = [grade.record for grade in grades if grade.record]
    if not records:
        return {}
    try:
        return {f"fact:{name}": value for name, value in score_records(records).items()}
    except ScoringError:
        return dict.fromkeys(("fact:avg_citations_per_task", "fact:effective_citations", "fact:citation_accuracy"))


class _ExtractedFact(Frozen):
    fact: Annotated[str, Field(min_length=1)]
    ref_idx: str | int = ""
    url: Annotated[str, Field(min_length=1)]


class _ValidatedFact(Frozen):
    idx: int
    result: Literal["supported", "unsupported", "unknown"]


_EXTRACTED = TypeAdapter(list[_ExtractedFact])
_VALIDATED = TypeAdapter(list[_ValidatedFact])
_NUMBERS = TypeAdapter(list[Annotated[int, Field(strict=True, ge=1)]])


def _read_list(reply: str, entries: TypeAdapter[Any]) -> list[Any] | Unparsed:
    """The reply as one JSON list of such entries; an entry of another form makes all of it unreadable."""
    value = read_value(reply)
    if isinstance(value, Unparsed):
        return value
    try:
        listed: list[Any] = entries.validate_python(value, strict=True)
    except ValidationError as failure:
        return Unparsed(f"not a list of the asked form: {failure.errors(include_url=False)[0]['msg']}")
    return listed


def read_facts(reply: str) -> list[JsonValue] | Unparsed:
    """The facts of an extraction, each with its url."""
    facts = _read_list(reply, _EXTRACTED)
    return facts if isinstance(facts, Unparsed) else [fact.model_dump(exclude_unset=True) for fact in facts]


def read_named(reply: str, *, num_facts: int) -> list[int] | Unparsed:
    """The numbers of the facts to keep, from 1: at least one, each once, none of a fact that is not there."""
    named = _read_list(reply, _NUMBERS)
    if isinstance(named, Unparsed):
        return named
    is_usable = named and len(set(named)) == len(named) and max(named) <= num_facts
    return named if is_usable else Unparsed(f"the reply does not name some of {num_facts} facts, each once")


def read_validation(reply: str, *, num_facts: int) -> Validation:
    """One result for each fact, their index counted from 0, in the order of the facts."""
    results = _read_list(reply, _VALIDATED)
    if isinstance(results, Unparsed):
        return results
    by_number = {result.idx: result.result for result in results}
    if len(results) != num_facts or by_number.keys() != set(range(1, num_facts + 1)):
        return Unparsed(f"the reply has not one result for each of {num_facts} facts")
    return [{"idx": number - 1, "result": by_number[number]} for number in sorted(by_number)]


def parse_validation(reply: str, *, num_facts: int) -> Validation:
    """By the official parse, the results with their index counted from 0.

    Labels are not checked here: an unknown word counts as unsupported.
    """
    parsed = parse_list(reply)
    if isinstance(parsed, Unparsed):
        return parsed
    if len(parsed) != num_facts:
        return Unparsed(f"{len(parsed)} results for {num_facts} facts")
    results: list[dict[str, JsonValue]] = []
    for entry in parsed:
        number = entry.get("idx") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(number, int | float):
            return Unparsed("a result has no numeric idx")
        results.append({**entry, "idx": number - 1})
    return results


def parse_named(reply: str) -> JsonValue | Unparsed:
    """The facts that the judge names in place of repeated ones: numbers from 1, in JSON of whatever kind."""
    return parse_json(drop_fence_marks(reply))


def named_facts(facts: list[str], named: JsonValue | Unparsed) -> list[str]:
    """The facts that the judge names; all of them where its reply names none, or cannot be read.

    Raises ScoringError where the official code does: the judge names something that is no number of a fact.
    """
    if isinstance(named, Unparsed) or not named:
        return facts
    if not isinstance(named, list | dict):
        raise ScoringError("TypeError", f"the judge named {named!r}, not a list")
    if 0 in named or len(named) > len(facts):
        return facts
    kept: list[str] = []
    for number in named:
        if not isinstance(number, int):
            raise ScoringError("TypeError", f"the judge named fact {number!r}, not a number")
        # Negative numbers count from the end and a repeated one repeats its fact: the official list access allows both.
        if not -len(facts) <= number - 1 < len(facts):
            raise ScoringError("IndexError", f"the judge named fact {number} of {len(facts)}")
        kept.append(facts[number - 1])
    return kept


MARKDOWN_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<url>[^)]+)\)")
_TEXT_FRAGMENT = "#:~:text="


def clean_urls(text: str) -> str:
    """Every Markdown link without the text fragment that points into the page."""
    return MARKDOWN_LINK.sub(lambda link: f"[{link['title']}]({link['url'].partition(_TEXT_FRAGMENT)[0]})", text)


def check_citations(case: Case, grader: Grader, *, language: str) -> Asking[dict[str, JsonValue]]:
    """The record of one task, in the shape that the official scorer reads.

    Officially: extract, deduplicate, read pages, validate. DR Tulu takes facts and pages from its own traces.
    """
    if grader.rules.is_drtulu:
        facts, pages = traced_citations(case)
    else:
        facts = yield from _extract(case, grader, language=language)
        read = yield tuple(GradingQuestion(f"page {url}", url, is_page=True) for url in facts)
        # Officially a page that cannot be read becomes a text that says so, and is judged all the same.
        pages = {url: page or "scrape failed" for url, page in zip(facts, read, strict=True)}
    validations = yield tuple(
        grader.question(
            f"validate {url}",
            "drb_validate",
            parse=partial(read_validation, num_facts=len(listed)),
            official_parse=partial(parse_validation, num_facts=len(listed)),
            tries=MAX_TRIES,
            variant=language,
            is_fact=True,
            page=pages[url][:PAGE_LIMIT],
            facts=numbered(listed),
        )
        for url, listed in facts.items()
    )
    checked: dict[str, JsonValue] = {
        url: {
            "facts": list(listed),
            "validate_res": [] if isinstance(results, Unparsed) else results,
            "validate_error": results.reason if isinstance(results, Unparsed) else None,
        }
        for (url, listed), results in zip(facts.items(), validations, strict=True)
    }
    citations: list[JsonValue] = [{"fact": fact, "url": url} for url, listed in facts.items() for fact in listed]
    return {"citations": citations, "citations_deduped": checked}


def _extract(case: Case, grader: Grader, *, language: str) -> Asking[FactsByUrl]:
    """The facts that the judge extracts; of several facts of one url those that it keeps, or all where it says none."""
    article = clean_urls(case.answer.text)
    options: dict[str, Any] = {"tries": MAX_TRIES, "variant": language, "is_fact": True}
    (entries,) = yield (
        grader.question(
            "extract", "drb_extract", parse=read_facts, official_parse=parse_list, article=article, **options
        ),
    )
    facts = group_facts(entries)
    crowded = [url for url, listed in facts.items() if len(listed) > 1]
    replies = yield tuple(
        grader.question(
            f"dedup {url}",
            "drb_dedup",
            parse=partial(read_named, num_facts=len(facts[url])),
            official_parse=parse_named,
            facts=numbered(facts[url]),
            **options,
        )
        for url in crowded
    )
    for url, named in zip(crowded, replies, strict=True):
        try:
            facts[url] = named_facts(facts[url], named)
        except ScoringError:
            # The judge named a fact that does not exist: all of them stay.
            continue
    return facts


def traced_citations(case: Case) -> tuple[FactsByUrl, dict[str, str]]:
    """Facts as the answer cites them, by url, and as pages the snippets that the tools had shown."""
    if case.trajectory is None:
        return {}, {}
    sources = shown_sources(case.trajectory)
    texts = {key: text for segment in case.trajectory.segments for key, text in snippet_texts(segment)}
    facts: FactsByUrl = {}
    pages: dict[str, str] = {}
    for citation in find_citations(parse_trajectory(case.trajectory).answer or ""):
        for source_id in citation.ids:
            if source_id in texts:
                page = (sources[source_id].url if source_id in sources else "") or source_id
                facts.setdefault(page, []).append(citation.claim)
                pages[page] = texts[source_id]
    return facts, pages


def group_facts(entries: list[JsonValue] | Unparsed) -> FactsByUrl:
    """The extracted statements by url; entries without a statement or a url are skipped."""
    groups: FactsByUrl = {}
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            continue
        fact = entry.get("fact")
        url = entry.get("url")
        if isinstance(fact, str) and isinstance(url, str) and fact and url:
            groups.setdefault(url, []).append(fact)
    return groups


def parse_list(reply: str) -> list[JsonValue] | Unparsed:
    parsed = parse_json(drop_fence_marks(reply))
    return parsed if isinstance(parsed, list | Unparsed) else Unparsed("the reply is not a JSON list")
