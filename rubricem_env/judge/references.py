"""Where a policy repeats the bank's reference block: the judge is told that it does, and not what the block says.

The block stands in the prompt, which no judge is shown. Of the policy's text only long runs of the block's own words are
left out, and only after a tag of its name, closed or not. So nothing that a policy writes hides anything else, and a
lesson that it makes its own is judged with its plan.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest

from rubricem_env.domain.span import Span
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.grammar import RESERVED
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.shown_text import ShownText

REPEATED = "[reference block repeated]"
_BLOCK = "reference_examples"
_NAMES = "|".join(sorted(RESERVED, key=len, reverse=True))
_TAG = re.compile(rf"<\s*+(/?)\s*+({_NAMES})(?![\w-])[^<>]*+>", re.IGNORECASE | re.ASCII)


def find_repeats(reading: Reading) -> tuple[Span, ...]:
    """The parts of the policy's text that repeat the block of the prompt, in order."""
    segments = reading.trajectory.segments
    prompt = "".join(segment.text for segment in segments if segment.origin is Origin.PROMPT)
    lent = ShownText(span.of(prompt) for span in _after_openings(prompt))
    written = reading.policy_text
    return tuple(
        Span(span.start + found.start, span.start + found.end)
        for span in _after_openings(written)
        for found in lent.find_copies(span.of(written))
    )


def leave_out(repeats: tuple[Span, ...], text: str, *, within: Span) -> str:
    """A part of the text, with each repeat in it replaced by a note."""
    parts = []
    start = within.start
    for span in repeats:
        if span.start < within.end and within.start < span.end:
            parts += [text[start : max(start, span.start)], REPEATED]
            start = min(span.end, within.end)
    return "".join((*parts, text[start : within.end]))


def _after_openings(text: str) -> Iterator[Span]:
    """What follows each opening tag of the block, up to the next tag of ours."""
    tags = list(_TAG.finditer(text))
    for tag, following in zip_longest(tags, tags[1:]):
        if not tag[1] and tag[2].lower() == _BLOCK:
            yield Span(tag.end(), following.start() if following else len(text))
