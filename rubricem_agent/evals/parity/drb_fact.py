"""Recorded verdicts of DeepResearchBench FACT: deduplication, validation, the pooled numbers, and mended texts."""

from collections.abc import Sequence
from functools import partial

from rubricem_agent.evals.benchmarks.drb_fact import (
    MARKDOWN_LINK,
    MAX_TRIES,
    FactsByUrl,
    Validation,
    clean_urls,
    named_facts,
    parse_named,
    parse_validation,
    score_records,
)
from rubricem_agent.evals.parity.recorded_judge import CountedScoringError, RecordedJudge
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text


def deduplicate(facts_by_url: Sequence[tuple[str, Sequence[str]]], *, replies: Sequence[str]) -> tuple[FactsByUrl, int]:
    """The facts that the judge names, url by url, and the judge calls; a url with one fact needs no judge."""
    groups: FactsByUrl = {}
    for url, facts in facts_by_url:
        if facts:
            groups.setdefault(url, []).extend(facts)
    judge = RecordedJudge(replies)
    kept: FactsByUrl = {}
    for url, facts in groups.items():
        if len(facts) == 1:
            kept[url] = facts
            continue
        named = judge.first_parsed(parse_named, tries=MAX_TRIES)
        try:
            kept[url] = named_facts(facts, named)
        except ScoringError as error:
            raise CountedScoringError(error.official, error.reason, judge_calls=judge.calls) from error
    return kept, judge.calls


def remove_urls(text: str) -> str:
    """Every Markdown link reduced to its bracketed title."""
    return MARKDOWN_LINK.sub(lambda link: f"[{link['title']}]", text)


def clean_escape(text: str) -> str:
    """The text without the four backslash escapes that JSON does not know."""
    for character in "><+~":
        text = text.replace(f"\\{character}", character)
    return text


def recorded_validation(
    facts: tuple[Text, ...],
    *,
    reference: Text | None,
    judge_replies: tuple[Text, ...],
    language: Text | None,
    article_id: int | str | None,
) -> object:
    """The results for all facts of one url. An empty page is judged; an absent one is an error without a call."""
    judge = RecordedJudge(judge_replies)
    results: Validation = Unparsed("there is no page, or no prompt of its language")
    if reference is not None and article_id and language in ("zh", "en"):
        results = judge.first_parsed(partial(parse_validation, num_facts=len(facts)), tries=MAX_TRIES)
    failed = isinstance(results, Unparsed)
    return {"validate_res": [] if failed else results, "has_error": failed, "judge_calls": judge.calls}


def recorded_deduplication(
    facts_by_url: tuple[tuple[Text, tuple[Text, ...]], ...], judge_replies: tuple[Text, ...]
) -> object:
    kept, calls = deduplicate(facts_by_url, replies=judge_replies)
    return {"facts_by_url": kept, "judge_calls": calls}


def recorded_text(text: Text) -> object:
    return {"clean_urls": clean_urls(text), "remove_urls": remove_urls(text), "clean_escape": clean_escape(text)}


UNITS = {
    "stat": Unit(score_records),
    "validate": Unit(recorded_validation),
    "dedup": Unit(recorded_deduplication),
    "text": Unit(recorded_text),
}
