"""FACT: the statements of a report with their pages, and whether each page supports what cites it."""

from collections.abc import Generator, Mapping, Sequence

from pydantic import JsonValue

from rubricem_agent.evals.citation_links import clean_urls
from rubricem_agent.evals.drb_fact import MAX_TRIES, deduplicate, parse_validation, validate_url
from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.extraction import shown_sources
from rubricem_agent.evals.grading.grade import Case
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Asked, Question, Replies
from rubricem_agent.evals.modes import Mode, Rules
from rubricem_agent.evals.reply_json import Unparsed, drop_fence_marks, parse_json
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.reading import read_trajectory

PAGE_LIMIT = 100_000
"""Characters of a page that the judge reads."""
Checking = Generator[tuple[Question, ...], tuple[Replies, ...], dict[str, JsonValue]]
FactsByUrl = dict[str, list[str]]


class CitationCheck:
    """Officially: extract, thin out, read pages, validate. The predecessor takes facts and pages from its own traces."""

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    def check(self, case: Case, language: str) -> Checking:
        """The record of one task, in the shape that the official scorer reads."""
        if self._rules.mode is Mode.DRTULU:
            facts, pages = traced_citations(case)
        else:
            facts = yield from self._extract(case)
            pages = yield from _read_pages(list(facts))
        return (yield from self._validate(facts, pages, language=language, article_id=case.example.id))

    def _extract(self, case: Case) -> Generator[tuple[Question, ...], tuple[Replies, ...], FactsByUrl]:
        prompt = self._prompts.user("drb_extract", article=clean_urls(case.answer.text))
        ((*_, reply),) = yield (Question("extract", prompt, tries=MAX_TRIES, accepts=is_list),)
        groups = group_facts(reply)
        crowded = [url for url, facts in groups.items() if len(facts) > 1]
        asked = tuple(self._dedup(url, groups[url]) for url in crowded)
        replies = (yield asked) if asked else ()
        kept = dict(groups)
        for url, said in zip(crowded, replies, strict=True):
            kept[url] = thinned(url, groups[url], replies=said)
        return kept

    def _dedup(self, url: str, facts: Sequence[str]) -> Question:
        prompt = self._prompts.user("drb_dedup", facts=numbered(facts))
        return Question(f"dedup {url}", prompt, tries=MAX_TRIES, accepts=is_list)

    def _validate(self, facts: FactsByUrl, pages: Mapping[str, str], *, language: str, article_id: str) -> Checking:
        asked = tuple(self._question(url, listed, page=pages[url]) for url, listed in facts.items())
        replies = (yield asked) if asked else ()
        checked: dict[str, JsonValue] = {}
        for (url, listed), said in zip(facts.items(), replies, strict=True):
            result = validate_url(listed, reference=pages[url], replies=said, language=language, article_id=article_id)
            checked[url] = {
                "facts": list(listed),
                "validate_res": list(result.results),
                "validate_error": result.error,
            }
        citations: list[JsonValue] = [{"fact": fact, "url": url} for url, listed in facts.items() for fact in listed]
        return {"citations": citations, "citations_deduped": checked}

    def _question(self, url: str, facts: Sequence[str], *, page: str) -> Question:
        size = len(facts)
        return Question(
            f"validate {url}",
            self._prompts.user("drb_validate", page=page[:PAGE_LIMIT], facts=numbered(facts)),
            tries=MAX_TRIES,
            accepts=lambda reply: not isinstance(parse_validation(reply, num_facts=size), Unparsed),
        )


def traced_citations(case: Case) -> tuple[FactsByUrl, dict[str, str]]:
    """Facts as the answer cites them, by url, and the snippets that the tools had shown as pages."""
    if case.trajectory is None:
        return {}, {}
    sources = {source.id: source for source in shown_sources(case.trajectory)}
    facts: FactsByUrl = {}
    pages: dict[str, str] = {}
    for citation in find_citations(read_trajectory(case.trajectory).answer or ""):
        for source in (sources[each] for each in citation.ids if each in sources):
            facts.setdefault(source.url or source.id, []).append(citation.claim)
            pages[source.url or source.id] = source.content
    return facts, pages


def group_facts(reply: str) -> FactsByUrl:
    """The extracted statements by url; entries without a statement or a url are passed over."""
    entries = parse_json(drop_fence_marks(reply))
    groups: FactsByUrl = {}
    for entry in entries if isinstance(entries, list) else []:
        fact, url = (entry.get("fact"), entry.get("url")) if isinstance(entry, dict) else (None, None)
        if isinstance(fact, str) and isinstance(url, str) and fact and url:
            groups.setdefault(url, []).append(fact)
    return groups


def thinned(url: str, facts: list[str], *, replies: Sequence[str]) -> list[str]:
    """The facts that the judge keeps; all of them where it names one that there is not."""
    try:
        return deduplicate([(url, facts)], replies=replies).facts_by_url[url]
    except ScoringError:
        return facts


def is_list(reply: str) -> bool:
    return isinstance(parse_json(drop_fence_marks(reply)), list)


def numbered(facts: Sequence[str]) -> str:
    return "\n".join(f"{place}. {fact}" for place, fact in enumerate(facts, start=1))


def _read_pages(urls: Sequence[str]) -> Generator[tuple[Question, ...], tuple[Replies, ...], dict[str, str]]:
    if not urls:
        return {}
    replies = yield tuple(Question(f"page {url}", url, asked=Asked.PAGE) for url in urls)
    # Officially a page that cannot be read becomes a text that says so, and is judged all the same.
    return {url: page or "scrape failed" for url, (page,) in zip(urls, replies, strict=True)}
