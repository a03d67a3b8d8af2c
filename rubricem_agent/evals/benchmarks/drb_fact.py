"""DeepResearchBench FACT: whether the pages that a report cites support what it cites them for.

Facts are grouped by url, thinned by a judge, then validated page by page. Only results other than `unknown` from
pages validated without error count.

Markdown links in reports, as FACT's extraction step prepares them.

FACT: the statements of a report with their pages, and whether each page supports what cites it.

Recorded FACT cases.

DeepResearchBench: RACE against a reference article and, where it is asked for, FACT beside it.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.base import (
    CaseInput,
    EvaluationMode,
    RecordedInput,
    Replies,
    Rules,
    ScoringError,
    Unit,
    Unparsed,
    drop_fence_marks,
    parse_json,
)
from rubricem_agent.evals.benchmarks.drb_race import (
    DIMENSIONS,
    DrbGold,
    TaskCriteria,
    TaskFailure,
    judge_task,
    parse_scores,
)
from rubricem_agent.evals.extraction import shown_sources
from rubricem_agent.evals.grading import (
    Case,
    Grade,
    GradedExample,
    Grading,
    GradingQuestion,
    JudgePrompts,
    JudgeReplies,
    Responder,
    Totals,
    mean_metrics,
    mean_of,
    scores_of,
)
from rubricem_env.domain.base import Text
from rubricem_env.scaffold.reading import find_citations, read_trajectory

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


_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<url>[^)]+)\)")
_TEXT_FRAGMENT = "#:~:text="


def clean_urls(text: str) -> str:
    """Every link without the text fragment that points into the page."""
    return _LINK.sub(lambda link: f"[{link['title']}]({link['url'].partition(_TEXT_FRAGMENT)[0]})", text)


def remove_urls(text: str) -> str:
    """Every link cut down to its bracketed title."""
    return _LINK.sub(lambda link: f"[{link['title']}]", text)


def clean_escape(text: str) -> str:
    """The text without the four backslash escapes that JSON does not know."""
    for character in "><+~":
        text = text.replace(f"\\{character}", character)
    return text


PAGE_LIMIT = 100_000
"""Characters of a page that the judge reads."""
Checking = Generator[tuple[GradingQuestion, ...], tuple[JudgeReplies, ...], dict[str, JsonValue]]
FactsByUrl = dict[str, list[str]]


class CitationCheck:
    """Officially: extract, thin out, read pages, validate. The predecessor takes facts and pages from its own traces."""

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    def check(self, case: Case, language: str) -> Checking:
        """The record of one task, in the shape that the official scorer reads."""
        if self._rules.mode is EvaluationMode.DRTULU:
            facts, pages = traced_citations(case)
        else:
            facts = yield from self._extract(case)
            pages = yield from _read_pages(list(facts))
        return (yield from self._validate(facts, pages, language=language, article_id=case.example.id))

    def _extract(self, case: Case) -> Generator[tuple[GradingQuestion, ...], tuple[JudgeReplies, ...], FactsByUrl]:
        prompt = self._prompts.user("drb_extract", article=clean_urls(case.answer.text))
        ((*_, reply),) = yield (GradingQuestion("extract", prompt, tries=MAX_TRIES, accepts=is_list),)
        groups = group_facts(reply)
        crowded = [url for url, facts in groups.items() if len(facts) > 1]
        asked = tuple(self._dedup(url, groups[url]) for url in crowded)
        replies = (yield asked) if asked else ()
        kept = dict(groups)
        for url, said in zip(crowded, replies, strict=True):
            kept[url] = thinned(url, groups[url], replies=said)
        return kept

    def _dedup(self, url: str, facts: Sequence[str]) -> GradingQuestion:
        prompt = self._prompts.user("drb_dedup", facts=numbered(facts))
        return GradingQuestion(f"dedup {url}", prompt, tries=MAX_TRIES, accepts=is_list)

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

    def _question(self, url: str, facts: Sequence[str], *, page: str) -> GradingQuestion:
        size = len(facts)
        return GradingQuestion(
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


def _read_pages(
    urls: Sequence[str],
) -> Generator[tuple[GradingQuestion, ...], tuple[JudgeReplies, ...], dict[str, str]]:
    if not urls:
        return {}
    replies = yield tuple(GradingQuestion(f"page {url}", url, asked=Responder.PAGE) for url in urls)
    # Officially a page that cannot be read becomes a text that says so, and is judged all the same.
    return {url: page or "scrape failed" for url, (page,) in zip(urls, replies, strict=True)}


class FactStatInput(RecordedInput):
    records: tuple[dict[str, JsonValue], ...]


class FactValidateInput(RecordedInput):
    facts: tuple[Text, ...]
    reference: Text | None
    judge_replies: tuple[Text, ...]
    language: Text | None
    article_id: int | str | None


class FactDedupInput(RecordedInput):
    facts_by_url: tuple[tuple[Text, tuple[Text, ...]], ...]
    judge_replies: tuple[Text, ...]


class FactTextInput(RecordedInput):
    text: Text


def recorded_score_records(case_input: CaseInput) -> object:
    return score_records(FactStatInput.read(case_input).records)._asdict()


def recorded_validate(case_input: CaseInput) -> object:
    case = FactValidateInput.read(case_input)
    results, error, calls = validate_url(
        case.facts,
        reference=case.reference,
        replies=case.judge_replies,
        language=case.language,
        article_id=case.article_id,
    )
    return {"validate_res": results, "has_error": error is not None, "judge_calls": calls}


def recorded_deduplicate(case_input: CaseInput) -> object:
    case = FactDedupInput.read(case_input)
    return deduplicate(case.facts_by_url, replies=case.judge_replies)._asdict()


def recorded_clean_text(case_input: CaseInput) -> object:
    text = FactTextInput.read(case_input).text
    return {
        "clean_urls": clean_urls(text),
        "remove_urls": remove_urls(text),
        "clean_escape": clean_escape(text),
    }


UNITS = {
    "stat": Unit(recorded_score_records),
    "validate": Unit(recorded_validate),
    "dedup": Unit(recorded_deduplicate),
    "text": Unit(recorded_clean_text),
}


LEAST_CLEANED = 100
"""Characters; a shorter cleaned article is no article, officially."""
CLEANING_TRIES = 3
FACT_NAMES = ("avg_citations_per_task", "effective_citations", "citation_accuracy")


class DrbGrader:
    """RACE in any mode. FACT needs pages and many calls, and is asked for by name."""

    is_binary = False

    def __init__(
        self,
        rules: Rules,
        prompts: JudgePrompts,
        *,
        references: Mapping[str, str],
        citations: CitationCheck | None = None,
    ) -> None:
        self._rules = rules
        self._prompts = prompts
        self._references = references
        self._citations = citations

    @classmethod
    def for_rules(cls, rules: Rules, *, references: Mapping[str, str], with_fact: bool) -> "DrbGrader":
        names = ("drb_clean", "drb_race", *(("drb_extract", "drb_dedup", "drb_validate") if with_fact else ()))
        prompts = JudgePrompts.read(*names)
        return cls(
            rules, prompts, references=references, citations=CitationCheck(rules, prompts) if with_fact else None
        )

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """Clean, compare; then, for FACT, extract, thin out, read the pages, validate."""
        gold = case.gold_as(DrbGold)
        if case.answer.is_empty:
            return self._failed("there is no article")
        ((*_, cleaned),) = yield (self._clean(case, gold),)
        if not is_article(cleaned):
            return self._failed(f"the cleaned article has fewer than {LEAST_CLEANED} characters")
        (replies,) = yield (self._compare(case, gold, cleaned=cleaned),)
        grade = self._race(replies, gold.criteria)
        if self._citations is None:
            return grade
        record = yield from self._citations.check(case, gold.language)
        return grade._replace(record=record)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """Plain means of the overall score and the dimensions; FACT is pooled over all tasks."""
        metrics = {"overall_score": mean_of(scores_of(graded)), **mean_metrics(graded)}
        return Totals("overall_score", metrics | _fact(graded))

    def _clean(self, case: Case, gold: DrbGold) -> GradingQuestion:
        prompt = self._prompts.user("drb_clean", article=case.answer.text, language=gold.language)
        return GradingQuestion("clean", prompt, tries=CLEANING_TRIES, accepts=is_article)

    def _compare(self, case: Case, gold: DrbGold, *, cleaned: str) -> GradingQuestion:
        prompt = self._prompts.user(
            "drb_race",
            task=case.example.prompt_text,
            article=cleaned,
            reference=self._references[gold.id],
            criteria=render_criteria(gold.criteria),
        )
        return GradingQuestion("race", prompt, tries=self._rules.tries, accepts=has_scores)

    def _race(self, replies: tuple[str, ...], criteria: TaskCriteria) -> Grade:
        outcome = judge_task(replies, criteria, max_tries=len(replies)).outcome
        unreadable = len(replies) - has_scores(replies[-1])
        if isinstance(outcome, TaskFailure):
            return self._failed(outcome.error)._replace(unreadable=unreadable)
        labels = {name: f"{value:.2f}" for name, value in outcome.dimensions.items()}
        return Grade(outcome.overall, outcome.overall, metrics=outcome.dimensions, labels=labels, unreadable=unreadable)

    def _failed(self, reason: str) -> Grade:
        return Grade(0.0 if self._rules.is_strict else None, 0.0, reason)


def is_article(cleaned: str) -> bool:
    return len(cleaned.strip()) >= LEAST_CLEANED


def has_scores(reply: str) -> bool:
    return not isinstance(parse_scores(reply), Unparsed)


def render_criteria(criteria: TaskCriteria) -> str:
    """The criteria by dimension, with their explanations and without their weights."""
    lines: list[str] = []
    for dimension in DIMENSIONS:
        lines.append(f"## {dimension}")
        lines += [f"- {item.criterion}\n  {item.explanation}" for item in criteria.criterions.get(dimension, ())]
    return "\n".join(lines)


def _fact(graded: Sequence[GradedExample]) -> dict[str, float | None]:
    records = [one.grade.record for one in graded if one.grade.record]
    if not records:
        return {}
    try:
        score = score_records(records)
    except ScoringError:
        return {f"fact:{name}": None for name in FACT_NAMES}
    return {f"fact:{name}": value for name, value in score._asdict().items()}
