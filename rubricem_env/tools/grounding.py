"""Gemini's grounding metadata as snippets: which source supports which words of the answer."""

from google.genai import types

from rubricem_env.domain.tool import Snippet

_JOINT = " [...] "


def read_grounding(answer: str, metadata: types.GroundingMetadata | None) -> tuple[Snippet, ...]:
    """One snippet for each web source that supports something, in the order of the sources.

    A snippet's text is what the source supports, not what it says: the API shows no more. Where it names no support
    at all, every source is kept without text.
    """
    chunks = (metadata.grounding_chunks if metadata else None) or []
    supports = (metadata.grounding_supports if metadata else None) or []
    supported: dict[int, list[str]] = {}
    for support in supports:
        words = _words(answer, support.segment)
        for index in support.grounding_chunk_indices or []:
            if words and words not in supported.setdefault(index, []):
                supported[index].append(words)
    snippets = []
    for index, chunk in enumerate(chunks):
        if chunk.web is not None and (index in supported or not supports):
            title = chunk.web.title or chunk.web.domain or ""
            snippets.append(Snippet(text=_JOINT.join(supported.get(index, [])), title=title, url=chunk.web.uri or ""))
    return tuple(snippets)


def _words(answer: str, segment: types.Segment | None) -> str:
    if segment is None:
        return ""
    if segment.text:
        return segment.text
    # Offsets count bytes, of the answer in UTF-8; the last one is outside.
    words = answer.encode()[segment.start_index or 0 : segment.end_index or 0]
    return words.decode("utf-8", "ignore")
