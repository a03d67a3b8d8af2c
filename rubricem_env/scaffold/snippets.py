"""The snippets that tools have shown in a trajectory."""

from collections.abc import Iterable, Iterator

from rubricem_env.domain.trajectory import Origin, Segment
from rubricem_env.scaffold.grammar import SNIPPET
from rubricem_env.scaffold.lexer import find_structure, parse_attributes


def shown_snippets(segments: Iterable[Segment]) -> frozenset[str]:
    """The ids of all snippets that tools have shown.

    They come from the episode's observations if there are any, as far as the text bears them out; in files from
    elsewhere from the tool text. A snippet tag inside another snippet is page text, not a snippet. Policy text never
    counts.
    """
    shown: set[str] = set()
    for segment in segments:
        if segment.origin is not Origin.TOOL:
            continue
        if segment.observation is not None:
            shown.update(held_ids(segment.text, segment.observation.snippet_ids))
        else:
            shown.update(_written_ids(segment.text))
    return frozenset(shown)


def held_ids(text: str, snippet_ids: Iterable[str]) -> Iterator[str]:
    """Those of the ids whose snippets stand in the text."""
    at = 0
    for snippet_id in snippet_ids:
        tag = f'<{SNIPPET} id="{snippet_id}">'
        # A tool writes them in order; so most often the text is read once.
        index = text.find(tag, at)
        if index >= 0:
            at = index
        elif tag not in text:
            continue
        yield snippet_id


def _written_ids(text: str) -> Iterator[str]:
    inside = False
    for token in find_structure(text):
        if token.name != SNIPPET:
            continue
        if token.closing:
            inside = False
        elif not inside:
            inside = not token.empty
            snippet_id = parse_attributes(token)[0].get("id", "")
            if snippet_id:
                yield snippet_id
