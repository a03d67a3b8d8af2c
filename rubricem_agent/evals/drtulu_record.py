"""The predecessor's run record turned into a DeepResearchBench article with pre-scraped FACT citations.

FACT's extraction, deduplication and scraping are replaced by the agent's own traces, so these FACT numbers are not
comparable with the leaderboard's.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.drtulu_io import convert_citations
from rubricem_agent.evals.errors import ScoringError

_CHINESE = re.compile("[\u4e00-\u9fff]")
_SNIPPET = re.compile(
    r"<snippet id=(?P<id>[^>]+)>\s*Title: (?P<title>.*?)\s*(?:URL: (?P<url>.*?))?\s*Snippet: (?P<text>.*?)\s*</snippet>",
    re.DOTALL,
)
_RESULT = re.compile(
    r"Title: (?P<title>.*?)\n(?:URL: (?P<url>.*?)\n)?Snippet: (?P<text>.*?)(?=\nTitle: |\Z)",
    re.DOTALL,
)


class Source(NamedTuple):
    """One search result; the url is empty where none was given."""

    title: str
    url: str
    text: str


class DrbRecord(NamedTuple):
    """What the official DeepResearchBench code reads."""

    id: JsonValue
    prompt: JsonValue
    article: str
    citations: list[dict[str, JsonValue]]
    citations_deduped: dict[str, dict[str, JsonValue]]


def format_record(record: Mapping[str, JsonValue]) -> DrbRecord:
    """The article with numbered references, and the facts cited from each url.

    A record without id, problem or answer raises ScoringError("KeyError"): the official driver drops such a row.
    """
    identity = record["example_id"] if "example_id" in record else _field(record, "id")
    prompt = _field(record, "problem")
    found = read_sources(record)
    sources = dict(found)
    # Of two results with one url the later id wins; of two with one id the later content, and both urls stay known.
    id_of_url = {source.url: source_id for source_id, source in found}
    cited = convert_citations(_final_response(record))
    facts = {
        url: (source_id, cited.claims_by_id[source_id])
        for url, source_id in id_of_url.items()
        if source_id in cited.claims_by_id
    }
    citations: list[dict[str, JsonValue]] = [
        {"fact": claim, "ref_indx": source_id, "url": url}
        for url, (source_id, claims) in facts.items()
        for claim in claims
    ]
    deduped: dict[str, dict[str, JsonValue]] = {
        url: {"facts": list(claims), "url_content": f"{sources[source_id].title}\n\n{sources[source_id].text}"}
        for url, (source_id, claims) in facts.items()
    }
    article = _with_references(cited.text, cited.ids, sources=sources, urls=list(id_of_url))
    return DrbRecord(identity, prompt, article, citations, deduped)


def read_sources(record: Mapping[str, JsonValue]) -> list[tuple[str, Source]]:
    """Search results with their ids: numbered per call where the call has one, else as tagged in the generated text."""
    sources: list[tuple[str, Source]] = []
    if "full_traces" not in record:
        return sources
    calls = _field(record["full_traces"], "tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict) and "call_id" in call:
            results = _call_results(call)
            sources.extend((f"{call['call_id']}-{position}", source) for position, source in enumerate(results))
        else:
            sources.extend(_tagged_snippets(_text(call, "generated_text")))
    return sources


def _call_results(call: Mapping[str, JsonValue]) -> list[Source]:
    results = _listed_results(_text(call, "output"))
    return results or _listed_results(_joined_raw_output(call))


def _joined_raw_output(call: Mapping[str, JsonValue]) -> str:
    """The outputs of a chained tool, one after another; empty where the call was refused and has none."""
    raw = call.get("raw_output")
    outputs = raw.get("tool_outputs") if isinstance(raw, dict) else None
    if not isinstance(outputs, list):
        return ""
    texts = [output.get("output") if isinstance(output, dict) else None for output in outputs]
    return "\n\n".join(text.strip() for text in texts if isinstance(text, str)) if None not in texts else ""


def _listed_results(text: str) -> list[Source]:
    return [_as_source(match) for match in _RESULT.finditer(text)]


def _tagged_snippets(text: str) -> list[tuple[str, Source]]:
    snippets = {match["id"].strip(): _as_source(match) for match in _SNIPPET.finditer(text)}
    return list(snippets.items())


def _as_source(match: re.Match[str]) -> Source:
    return Source(match["title"].strip(), (match["url"] or "").strip(), match["text"].strip())


def _with_references(article: str, cited: list[str], *, sources: Mapping[str, Source], urls: list[str]) -> str:
    references: list[str] = []
    for number, source_id in enumerate(cited, start=1):
        url = sources[source_id].url if source_id in sources else next((u for u in urls if source_id in u), None)
        if url is None:
            article = article.replace(f"[{source_id}]", "")
            continue
        references.append(f"[{number}] {url}")
        # Every occurrence, also inside words and longer ids, as officially.
        article = article.replace(source_id, str(number))
    heading = "参考文献" if _CHINESE.search(article) else "References"
    return f"{article}\n\n {heading}: " + "\n".join(references)


def _final_response(record: Mapping[str, JsonValue]) -> str:
    return _text(record, "final_response" if "final_response" in record else "pred_answer", official="final_response")


def _field(record: JsonValue | Mapping[str, JsonValue], name: str) -> JsonValue:
    if not isinstance(record, Mapping):
        raise ScoringError("TypeError", f"{record!r} has no field {name}")
    if name not in record:
        raise ScoringError("KeyError", f"the record has no field {name}")
    return record[name]


def _text(record: JsonValue | Mapping[str, JsonValue], name: str, *, official: str | None = None) -> str:
    value = _field(record, name)
    if not isinstance(value, str):
        raise ScoringError("TypeError", f"the record's {official or name} is not a text")
    return value
