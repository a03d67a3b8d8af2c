"""The answer within what a policy wrote, and how it was found. Explicit, because published numbers depend on it."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from rubricem_agent.evals.drtulu_io import extract_answer
from rubricem_agent.evals.modes import Citations, Extraction, Rules
from rubricem_env.domain.query import AnswerFormat
from rubricem_env.domain.trajectory import Ending, Origin, Trajectory
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.reading import read_trajectory

MAX_ANSWER = 400_000
"""Characters. A longer answer is a failure of the policy, and no judge is asked about it."""

_BOX = "\\boxed{"
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


class Source(NamedTuple):
    """A snippet that a tool showed."""

    id: str
    url: str
    content: str


def extract(trajectory: Trajectory, rules: Rules) -> Extracted:
    """The answer by the mode's rule, its citations treated by the mode's rule."""
    ending = (trajectory.ending or Ending.ABANDONED).value
    found = _predecessor(trajectory) if rules.extraction is Extraction.PREDECESSOR else _from_tag(trajectory)
    return judged_text(found._replace(ending=ending), rules, sources=shown_sources(trajectory))


def judged_text(found: Extracted, rules: Rules, *, sources: Sequence[Source] = ()) -> Extracted:
    """The answer as the judge reads it; one that is too long becomes empty."""
    if len(found.text) > MAX_ANSWER:
        return Extracted("", Found.TOO_LONG, found.ending)
    if rules.citations is Citations.KEPT:
        return found
    return found._replace(text=_without_tags(found.text, rules.citations, sources=sources))


def shown_sources(trajectory: Trajectory) -> tuple[Source, ...]:
    """Every snippet that tools showed, in order, with the first url in it."""
    sources: list[Source] = []
    for segment in trajectory.segments:
        if segment.origin is Origin.TOOL:
            for snippet in _SNIPPET.finditer(segment.text):
                url = _URL.search(snippet["content"])
                sources.append(Source(snippet["id"], url.group() if url else "", snippet["content"].strip()))
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


def _without_tags(text: str, citations: Citations, *, sources: Sequence[Source]) -> str:
    numbers: dict[str, int] = {}
    pieces: list[str] = []
    position = 0
    for citation in find_citations(text):
        pieces += [text[position : citation.start], citation.claim]
        if citations is Citations.NUMBERED:
            pieces += [f" [{numbers.setdefault(each, len(numbers) + 1)}]" for each in citation.ids]
        position = citation.end
    plain = "".join((*pieces, text[position:]))
    url_of = {source.id: source.url for source in sources}
    references = [f"[{number}] {url_of.get(each) or each}" for each, number in numbers.items()]
    return plain + ("\n\nReferences:\n" + "\n".join(references) if references else "")
