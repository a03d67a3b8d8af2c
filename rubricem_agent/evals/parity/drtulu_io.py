"""Reads DR Tulu's run records: their answers, their citations, and their form as articles.

DR Tulu's citation conversion is lossy on purpose. `format_record` turns run records into DeepResearchBench articles
with pre-scraped FACT citations. Because the agent's own traces replace FACT's extraction, deduplication and scraping,
such FACT numbers are not comparable with the leaderboard's.
"""

import re
from collections.abc import Mapping

from pydantic import JsonValue

from rubricem_agent.evals.extraction import extract_answer
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.scoring_error import ScoringError, official_field
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import Snippet

# Only the singular attribute: text cited with ids= is left unchanged. A tag inside the cited text stops the match.
_CITATION = re.compile(r'<cite id="(?P<ids>[^"]+)">(?P<claim>[^<]+)</cite>')


_CHINESE = re.compile("[\u4e00-\u9fff]")


_RECORD_SNIPPET = re.compile(
    r"<snippet id=(?P<id>[^>]+)>\s*Title: (?P<title>.*?)\s*"
    r"(?:URL: (?P<url>.*?))?\s*Snippet: (?P<text>.*?)\s*</snippet>",
    re.DOTALL,
)


_RESULT = re.compile(
    r"Title: (?P<title>.*?)\n(?:URL: (?P<url>.*?)\n)?Snippet: (?P<text>.*?)(?=\nTitle: |\Z)", re.DOTALL
)


def convert_citations(text: str) -> tuple[str, dict[str, list[str]]]:
    """Every cite tag as ". claim [id] [id].", and the claims by id in order of first appearance.

    Ids are split at commas and not stripped.
    """
    claims_by_id: dict[str, list[str]] = {}

    def mark(citation: re.Match[str]) -> str:
        ids = citation["ids"].split(",")
        for source_id in ids:
            claims_by_id.setdefault(source_id, []).append(citation["claim"])
        return f". {citation['claim']} {' '.join(f'[{source_id}]' for source_id in ids)}."

    return _CITATION.sub(mark, text), claims_by_id


def format_record(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """What the official DeepResearchBench code reads: the article with numbered references, and the facts of each url.

    A record without id, problem or answer raises ScoringError("KeyError"): the official driver drops such a row.
    """
    identity = record["example_id"] if "example_id" in record else official_field(record, "id")
    prompt = official_field(record, "problem")
    # Of two results with one url the later id wins; of two with one id the later content, and both urls stay known.
    cited = read_sources(record)
    sources = dict(cited)
    id_of_url = {source.url: source_id for source_id, source in cited}
    response = "final_response" if "final_response" in record else "pred_answer"
    text, claims_by_id = convert_citations(_text(record, response, official="final_response"))
    facts = {
        url: (source_id, claims_by_id[source_id]) for url, source_id in id_of_url.items() if source_id in claims_by_id
    }
    return {
        "id": identity,
        "prompt": prompt,
        "article": _with_references(text, list(claims_by_id), sources=sources, urls=list(id_of_url)),
        "citations": [
            {"fact": claim, "ref_indx": source_id, "url": url}
            for url, (source_id, claims) in facts.items()
            for claim in claims
        ],
        "citations_deduped": {
            url: {"facts": list(claims), "url_content": f"{sources[source_id].title}\n\n{sources[source_id].text}"}
            for url, (source_id, claims) in facts.items()
        },
    }


def read_sources(record: Mapping[str, JsonValue]) -> list[tuple[str, Snippet]]:
    """Ids and search results: numbered per call where the call has one, else as tagged in the generated text."""
    if "full_traces" not in record:
        return []
    sources: list[tuple[str, Snippet]] = []
    calls = official_field(record["full_traces"], "tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict) and "call_id" in call:
            results = list(_RESULT.finditer(_text(call, "output"))) or list(_RESULT.finditer(_joined_raw_output(call)))
            sources += [(f"{call['call_id']}-{index}", _source(match)) for index, match in enumerate(results)]
        else:
            tagged = _RECORD_SNIPPET.finditer(_text(call, "generated_text"))
            snippets = {match["id"].strip(): match for match in tagged}
            sources += [(snippet_id, _source(match)) for snippet_id, match in snippets.items()]
    return sources


def _source(match: re.Match[str]) -> Snippet:
    url = (match["url"] or "").strip()
    return Snippet(text=match["text"].strip(), title=match["title"].strip(), url=url)


def _joined_raw_output(call: Mapping[str, JsonValue]) -> str:
    """The outputs of a chained tool, concatenated; empty where the call was refused and has none."""
    raw = call.get("raw_output")
    outputs = raw.get("tool_outputs") if isinstance(raw, dict) else None
    if not isinstance(outputs, list):
        return ""
    texts = [output.get("output") if isinstance(output, dict) else None for output in outputs]
    return "\n\n".join(text.strip() for text in texts if isinstance(text, str)) if None not in texts else ""


def _with_references(article: str, cited: list[str], *, sources: Mapping[str, Snippet], urls: list[str]) -> str:
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


def _text(record: JsonValue | Mapping[str, JsonValue], name: str, *, official: str | None = None) -> str:
    value = official_field(record, name)
    if not isinstance(value, str):
        raise ScoringError("TypeError", f"the record's {official or name} is not a text")
    return value


def recorded_extraction(generated_text: Text) -> object:
    return {"final_response": extract_answer(generated_text)}


def recorded_citations(text: Text) -> object:
    converted, claims_by_id = convert_citations(text)
    return {"text": converted, "ids": list(claims_by_id), "id_to_text": claims_by_id}


UNITS = {
    "answer_extraction": Unit(recorded_extraction),
    "citation_format": Unit(recorded_citations),
    "drb_record": Unit(format_record),
}
