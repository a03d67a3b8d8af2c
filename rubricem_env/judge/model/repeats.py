"""Finds where an attempt repeats the bank's reference block, so that the judge is not shown it."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest

from rubricem_env.domain.base import Span
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.grammar import MAX_SCAFFOLDS, alternatives, grammar_of
from rubricem_env.scaffold.parsed import ParsedTrajectory

REPEATED = "[reference block repeated]"
_BLOCK = "reference_examples"


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _tag(scaffold: Scaffold) -> re.Pattern[str]:
    names = alternatives(grammar_of(scaffold).reserved)
    return re.compile(rf"<\s*+(/?)\s*+({names})(?![\w-])[^<>]*+>", re.IGNORECASE | re.ASCII)


def find_repeats(parsed: ParsedTrajectory) -> tuple[Span, ...]:
    """The spans of the policy's text that repeat the reference block of the prompt, in order.

    Only long runs of the block's own words count, and only after a tag of its name, closed or not. So a policy cannot
    hide other text, and a lesson in its own words is judged with its plan.
    """
    segments = parsed.trajectory.segments
    prompt = "".join(segment.text for segment in segments if segment.origin is Origin.PROMPT)
    block = ShownText(span.of(prompt) for span in _after_openings(prompt, parsed.scaffold))
    written = parsed.policy_text
    return tuple(
        Span(span.start + copy.start, span.start + copy.end)
        for span in _after_openings(written, parsed.scaffold)
        for copy in block.find_copies(span.of(written))
    )


def leave_out(repeats: tuple[Span, ...], text: str, *, within: Span) -> str:
    """The text within the span, with each repeat replaced by a note."""
    kept = []
    start = within.start
    for span in repeats:
        if span.start < within.end and within.start < span.end:
            kept += [text[start : max(start, span.start)], REPEATED]
            start = min(span.end, within.end)
    return "".join((*kept, text[start : within.end]))


def _after_openings(text: str, scaffold: Scaffold) -> Iterator[Span]:
    """What follows each opening tag of the block, up to the next reserved tag."""
    tags = list(_tag(scaffold).finditer(text))
    for tag, following in zip_longest(tags, tags[1:]):
        if not tag[1] and tag[2].lower() == _BLOCK:
            yield Span(tag.end(), following.start() if following else len(text))
