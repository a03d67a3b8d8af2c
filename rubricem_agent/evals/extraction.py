"""Extracts the answer from what a policy wrote, and removes citations as the mode asks.

Published numbers depend on it, so each mode fixes its rule. DR Tulu's extraction is lossy on purpose: a box is taken
even out of a long report, and it ends at the first closing brace.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from rubricem_env.domain.trajectory import AnswerFormat, Ending, Trajectory
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.evaluations.rules import CitationMode, Rules
from rubricem_records.rollouts.snippet_sources import SnippetSource, shown_sources

MAX_ANSWER = 400_000
"""Characters. A longer answer is a failure of the policy, and counts as empty: no judge is asked about it."""

UNKNOWN_SOURCE = "a source that no tool has shown"
_THOUGHT_END = "</think>"
_BOX = "\\boxed{"
# A backslash-b that a string literal turned into the backspace character is read as the box that was intended.
_BROKEN_BOX = "\boxed{"

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

    @property
    def has_none(self) -> bool:
        """Whether the policy gave no answer. The predecessor's rule takes other text of it in its place."""
        if self.found == "predecessor's rule":
            return self.ending != Ending.ANSWERED
        return self.is_empty and self.found != "answer too long"


Sources = Mapping[str, SnippetSource]


def extract(trajectory: Trajectory, rules: Rules) -> Extracted:
    """The answer by the mode's rule, its citations treated by the mode's rule."""
    ending = (trajectory.ending or Ending.ABANDONED).value
    if rules.extraction == "predecessor":
        # Thoughts without their own block reach up to the first answer tag, which the rule looks for anyway.
        extracted = Extracted(extract_answer(trajectory.policy_text), "predecessor's rule", ending)
    else:
        parsed = parse_trajectory(trajectory)
        extracted = Extracted(
            parsed.answer or "", "answer tag" if parsed.is_complete else "unclosed answer tag", ending
        )
        if parsed.answer is None:
            extracted = Extracted("", "no answer", ending)
        elif trajectory.answer_format is AnswerFormat.EXACT and (boxed := unboxed(parsed.answer)) is not None:
            extracted = Extracted(boxed, "box in the answer tag", ending)
    return judged_text(extracted, rules, sources=shown_sources(trajectory))


def judged_text(
    found: Extracted, rules: Rules, *, sources: Mapping[str, SnippetSource] = MappingProxyType({})
) -> Extracted:
    """The answer as the judge reads it; one that is too long becomes empty."""
    if len(found.text) > MAX_ANSWER:
        return Extracted("", "answer too long", found.ending)
    if rules.citations == "kept":
        return found
    return found._replace(text=_without_tags(found.text, rules.citations, sources=sources))


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
            pieces += [f" [{numbers.setdefault(snippet_id, len(numbers) + 1)}]" for snippet_id in citation.ids]
        position = citation.end
    plain = "".join((*pieces, text[position:]))
    # An id that no tool has shown may look like an address: it names no source.
    urls = {source_id: source.url or source_id for source_id, source in sources.items()}
    references = [f"[{number}] {urls.get(each, UNKNOWN_SOURCE)}" for each, number in numbers.items()]
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
