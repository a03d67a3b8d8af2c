"""The answer within what a policy wrote, and how it was found. Explicit, because published numbers depend on it.

The predecessor's answer extraction and citation conversion, needed to read its published numbers.

Both are lossy on purpose: a box is taken even out of a long report, and it ends at the first closing brace.

The predecessor's run record turned into a DeepResearchBench article with pre-scraped FACT citations.

FACT's extraction, deduplication and scraping are replaced by the agent's own traces, so these FACT numbers are not
comparable with the leaderboard's.

Recorded cases of the predecessor's answer extraction and citation conversion.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.base import CaseInput, CitationMode, Extraction, RecordedInput, Rules, ScoringError, Unit
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat, Ending, Origin, Trajectory
from rubricem_env.scaffold.reading import find_citations, read_trajectory

_THOUGHT_END = "</think>"
_BOX = "\\boxed{"
# A backslash-b that a string literal turned into the backspace character is read as the box that it was meant to be.
_BROKEN_BOX = "\boxed{"
# Only the singular attribute: text cited with ids= stays as it is. A tag inside the cited text stops the match.
_CITATION = re.compile(r'<cite id="(?P<ids>[^"]+)">(?P<claim>[^<]+)</cite>')


class CitedText(NamedTuple):
    """Text with [id] marks, the ids by first appearance, and the claims made with each."""

    text: str
    ids: list[str]
    claims_by_id: dict[str, list[str]]


def extract_answer(generated: str) -> str:
    """Thoughts off, then the first answer block, then the first box; each only where it is there."""
    answer = generated
    if _THOUGHT_END in answer:
        answer = "".join(answer.split(_THOUGHT_END)[1:]).strip()
    if "<answer>" in answer:
        # Up to the next opening tag, so that an unclosed first block does not swallow the second.
        answer = answer.split("<answer>")[1].partition("</answer>")[0].strip()
    answer = answer.replace(_BROKEN_BOX, _BOX)
    if _BOX in answer:
        answer = answer.split(_BOX)[1].partition("}")[0].strip()
    return answer


def convert_citations(text: str) -> CitedText:
    """Every cite tag as ". claim [id] [id]."; ids are split at commas and not stripped."""
    claims_by_id: dict[str, list[str]] = {}

    def mark(citation: re.Match[str]) -> str:
        ids = citation["ids"].split(",")
        for each in ids:
            claims_by_id.setdefault(each, []).append(citation["claim"])
        return f". {citation['claim']} {' '.join(f'[{each}]' for each in ids)}."

    marked = _CITATION.sub(mark, text)
    return CitedText(marked, list(claims_by_id), claims_by_id)


MAX_ANSWER = 400_000
"""Characters. A longer answer is a failure of the policy, and no judge is asked about it."""

_SNIPPET = re.compile(r'<snippet id="(?P<id>[^"]+)">(?P<content>.*?)</snippet>', re.DOTALL)
_URL = re.compile(r"https?://[^\s<>\"]+")


class Found(StrEnum):
    """Where the answer was."""

    ANSWER_TAG = "answer tag"
    BOX = "box in the answer tag"
    UNCLOSED = "unclosed answer tag"
    PREDECESSOR = "predecessor's rule"
    GIVEN = "given answer"
    NONE = "no answer"
    TOO_LONG = "answer too long"


class Extracted(NamedTuple):
    """The text that is judged."""

    text: str
    found: Found
    ending: str = ""
    """How the episode ended, such as `answered` or `call_budget`."""

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


class ShownSnippet(NamedTuple):
    """A snippet that a tool showed."""

    id: str
    url: str
    content: str


def extract(trajectory: Trajectory, rules: Rules) -> Extracted:
    """The answer by the mode's rule, its citations treated by the mode's rule."""
    ending = (trajectory.ending or Ending.ABANDONED).value
    found = _predecessor(trajectory) if rules.extraction is Extraction.PREDECESSOR else _from_tag(trajectory)
    return judged_text(found._replace(ending=ending), rules, sources=shown_sources(trajectory))


def judged_text(found: Extracted, rules: Rules, *, sources: Sequence[ShownSnippet] = ()) -> Extracted:
    """The answer as the judge reads it; one that is too long becomes empty."""
    if len(found.text) > MAX_ANSWER:
        return Extracted("", Found.TOO_LONG, found.ending)
    if rules.citations is CitationMode.KEPT:
        return found
    return found._replace(text=_without_tags(found.text, rules.citations, sources=sources))


def shown_sources(trajectory: Trajectory) -> tuple[ShownSnippet, ...]:
    """Every snippet that tools showed, in order, with the first url in it."""
    sources: list[ShownSnippet] = []
    for segment in trajectory.segments:
        if segment.origin is Origin.TOOL:
            for snippet in _SNIPPET.finditer(segment.text):
                url = _URL.search(snippet["content"])
                sources.append(ShownSnippet(snippet["id"], url.group() if url else "", snippet["content"].strip()))
    return tuple(sources)


def unboxed(text: str) -> str | None:
    """The content of the first box, braces inside it balanced; None where there is no closed box."""
    _, opening, rest = text.partition(_BOX)
    depth = 1
    for position, character in enumerate(rest if opening else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[:position].strip()
    return None


def _from_tag(trajectory: Trajectory) -> Extracted:
    reading = read_trajectory(trajectory)
    if reading.answer is None:
        return Extracted("", Found.NONE)
    boxed = unboxed(reading.answer) if trajectory.answer_format is AnswerFormat.EXACT else None
    if boxed is not None:
        return Extracted(boxed, Found.BOX)
    return Extracted(reading.answer, Found.ANSWER_TAG if reading.is_complete else Found.UNCLOSED)


def _predecessor(trajectory: Trajectory) -> Extracted:
    # Thoughts without their own block reach up to the first answer tag, which the rule looks for anyway.
    return Extracted(extract_answer(trajectory.policy_text), Found.PREDECESSOR)


def _without_tags(text: str, citations: CitationMode, *, sources: Sequence[ShownSnippet]) -> str:
    numbers: dict[str, int] = {}
    pieces: list[str] = []
    position = 0
    for citation in find_citations(text):
        pieces += [text[position : citation.start], citation.claim]
        if citations is CitationMode.NUMBERED:
            pieces += [f" [{numbers.setdefault(each, len(numbers) + 1)}]" for each in citation.ids]
        position = citation.end
    plain = "".join((*pieces, text[position:]))
    url_of = {source.id: source.url for source in sources}
    references = [f"[{number}] {url_of.get(each) or each}" for each, number in numbers.items()]
    return plain + ("\n\nReferences:\n" + "\n".join(references) if references else "")


_CHINESE = re.compile("[\u4e00-\u9fff]")
_RECORD_SNIPPET = re.compile(
    r"<snippet id=(?P<id>[^>]+)>\s*Title: (?P<title>.*?)\s*(?:URL: (?P<url>.*?))?\s*Snippet: (?P<text>.*?)\s*</snippet>",
    re.DOTALL,
)
_RESULT = re.compile(
    r"Title: (?P<title>.*?)\n(?:URL: (?P<url>.*?)\n)?Snippet: (?P<text>.*?)(?=\nTitle: |\Z)",
    re.DOTALL,
)


class RecordSource(NamedTuple):
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


def read_sources(record: Mapping[str, JsonValue]) -> list[tuple[str, RecordSource]]:
    """Search results with their ids: numbered per call where the call has one, else as tagged in the generated text."""
    sources: list[tuple[str, RecordSource]] = []
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


def _call_results(call: Mapping[str, JsonValue]) -> list[RecordSource]:
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


def _listed_results(text: str) -> list[RecordSource]:
    return [_as_source(match) for match in _RESULT.finditer(text)]


def _tagged_snippets(text: str) -> list[tuple[str, RecordSource]]:
    snippets = {match["id"].strip(): _as_source(match) for match in _RECORD_SNIPPET.finditer(text)}
    return list(snippets.items())


def _as_source(match: re.Match[str]) -> RecordSource:
    return RecordSource(match["title"].strip(), (match["url"] or "").strip(), match["text"].strip())


def _with_references(article: str, cited: list[str], *, sources: Mapping[str, RecordSource], urls: list[str]) -> str:
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


class DRTuluExtractionInput(RecordedInput):
    generated_text: Text


class DRTuluCitationInput(RecordedInput):
    text: Text


class DRTuluRecordInput(RecordedInput):
    record: dict[str, JsonValue]


def recorded_extract_answer(case_input: CaseInput) -> object:
    return {"final_response": extract_answer(DRTuluExtractionInput.read(case_input).generated_text)}


def recorded_convert_citations(case_input: CaseInput) -> object:
    cited = convert_citations(DRTuluCitationInput.read(case_input).text)
    return {"text": cited.text, "ids": cited.ids, "id_to_text": cited.claims_by_id}


def recorded_format_record(case_input: CaseInput) -> object:
    return format_record(DRTuluRecordInput.read(case_input).record)._asdict()


UNITS = {
    "answer_extraction": Unit(recorded_extract_answer),
    "citation_format": Unit(recorded_convert_citations),
    "drb_record": Unit(recorded_format_record),
}
