"""The answer within what a policy wrote, how it was found, and what the judge reads of its citations.

Published numbers depend on it, so each mode fixes its rule. DR Tulu's extraction and citation conversion are lossy on
purpose: a box is taken even out of a long report, and it ends at the first closing brace. `format_record` turns DR
Tulu's run records into DeepResearchBench articles with pre-scraped FACT citations; because the agent's own traces
replace FACT's extraction, deduplication and scraping, such FACT numbers are not comparable with the leaderboard's.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.base import CitationMode, Rules, ScoringError, Unit, official_field
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat, Ending, Origin, Snippet, Trajectory
from rubricem_env.scaffold.parsed import find_citations, parse_trajectory

MAX_ANSWER = 400_000
"""Characters. A longer answer is a failure of the policy, and counts as empty: no judge is asked about it."""

_THOUGHT_END = "</think>"
_BOX = "\\boxed{"
# A backslash-b that a string literal turned into the backspace character is read as the box that was intended.
_BROKEN_BOX = "\boxed{"
_SNIPPET = re.compile(r'<snippet id="(?P<id>[^"]+)">(?P<content>.*?)</snippet>', re.DOTALL)
_URL = re.compile(r"https?://[^\s<>\"]+")

Found = Literal[
    "answer tag",
    "box in the answer tag",
    "unclosed answer tag",
    "predecessor's rule",
    "given answer",
    "no answer",
    "answer too long",
]
"""Where the answer was."""


class Extracted(NamedTuple):
    """The text that is judged."""

    text: str
    found: Found
    ending: str = ""
    """How the episode ended, such as `answered` or `call_budget`."""

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


Sources = Mapping[str, Snippet]
"""Search results by id."""


def extract(trajectory: Trajectory, rules: Rules) -> Extracted:
    """The answer by the mode's rule, its citations treated by the mode's rule."""
    ending = (trajectory.ending or Ending.ABANDONED).value
    if rules.extraction == "predecessor":
        # Thoughts without their own block reach up to the first answer tag, which the rule looks for anyway.
        found = Extracted(extract_answer(trajectory.policy_text), "predecessor's rule", ending)
    else:
        parsed = parse_trajectory(trajectory)
        found = Extracted(parsed.answer or "", "answer tag" if parsed.is_complete else "unclosed answer tag", ending)
        if parsed.answer is None:
            found = Extracted("", "no answer", ending)
        elif trajectory.answer_format is AnswerFormat.EXACT and (boxed := unboxed(parsed.answer)) is not None:
            found = Extracted(boxed, "box in the answer tag", ending)
    return judged_text(found, rules, sources=shown_sources(trajectory))


def judged_text(found: Extracted, rules: Rules, *, sources: Sources = MappingProxyType({})) -> Extracted:
    """The answer as the judge reads it; one that is too long becomes empty."""
    if len(found.text) > MAX_ANSWER:
        return Extracted("", "answer too long", found.ending)
    if rules.citations == "kept":
        return found
    return found._replace(text=_without_tags(found.text, rules.citations, sources=sources))


def shown_sources(trajectory: Trajectory) -> Sources:
    """Every snippet that tools showed, with the first url in it; of two with one id the later."""
    sources: dict[str, Snippet] = {}
    for segment in trajectory.segments:
        if segment.origin is Origin.TOOL:
            for shown in _SNIPPET.finditer(segment.text):
                url = _URL.search(shown["content"])
                sources[shown["id"]] = Snippet(text=shown["content"].strip(), url=url.group() if url else "")
    return sources


def unboxed(text: str) -> str | None:
    """The content of the first box, with balanced braces; None where there is no closed box."""
    _, opening, rest = text.partition(_BOX)
    depth = 1
    for position, character in enumerate(rest if opening else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[:position].strip()
    return None


def _without_tags(text: str, citations: CitationMode, *, sources: Sources) -> str:
    numbers: dict[str, int] = {}
    pieces: list[str] = []
    position = 0
    for citation in find_citations(text):
        pieces += [text[position : citation.start], citation.claim]
        if citations == "numbered":
            pieces += [f" [{numbers.setdefault(each, len(numbers) + 1)}]" for each in citation.ids]
        position = citation.end
    plain = "".join((*pieces, text[position:]))
    urls = {source_id: source.url for source_id, source in sources.items()}
    references = [f"[{number}] {urls.get(each) or each}" for each, number in numbers.items()]
    return plain + ("\n\nReferences:\n" + "\n".join(references) if references else "")


def extract_answer(generated: str) -> str:
    """DR Tulu's rule: drop the thoughts, then take the first answer block, then the first box; each where present."""
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


# Only the singular attribute: text cited with ids= is left unchanged. A tag inside the cited text stops the match.
_CITATION = re.compile(r'<cite id="(?P<ids>[^"]+)">(?P<claim>[^<]+)</cite>')
_CHINESE = re.compile("[\u4e00-\u9fff]")
_RECORD_SNIPPET = re.compile(
    r"<snippet id=(?P<id>[^>]+)>\s*Title: (?P<title>.*?)\s*(?:URL: (?P<url>.*?))?\s*Snippet: (?P<text>.*?)\s*</snippet>",
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
        for each in ids:
            claims_by_id.setdefault(each, []).append(citation["claim"])
        return f". {citation['claim']} {' '.join(f'[{each}]' for each in ids)}."

    return _CITATION.sub(mark, text), claims_by_id


def format_record(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """What the official DeepResearchBench code reads: the article with numbered references, and the facts of each url.

    A record without id, problem or answer raises ScoringError("KeyError"): the official driver drops such a row.
    """
    identity = record["example_id"] if "example_id" in record else official_field(record, "id")
    prompt = official_field(record, "problem")
    # Of two results with one url the later id wins; of two with one id the later content, and both urls stay known.
    found = read_sources(record)
    sources = dict(found)
    id_of_url = {source.url: source_id for source_id, source in found}
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


def _with_references(article: str, cited: list[str], *, sources: Sources, urls: list[str]) -> str:
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


UNITS: dict[str, Unit] = {
    "answer_extraction": {"official": recorded_extraction},
    "citation_format": {"official": recorded_citations},
    "drb_record": {"official": format_record},
}
