"""The elements of a trajectory as the API shows them."""

import re
from collections.abc import Collection, Sequence
from itertools import islice

from rubricem_env.domain.trajectory import Segment
from rubricem_env.scaffold.citations import find_citations
from rubricem_records.rollouts.snippet_sources import snippet_texts, sources_of
from rubricem_viewer.api.trajectories import CitationView, Element, SectionView, SnippetView
from rubricem_viewer.element_segments import ElementSegment
from rubricem_viewer.utf16 import count_units

MAX_TEXT = 20_000

MAX_SNIPPET = 8_000

MAX_ELEMENTS = 200

MAX_CITATIONS = 500

_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>\n?', re.DOTALL)


def make_elements(
    pieces: Sequence[ElementSegment], first: int, *, cited: Collection[str], shown: Collection[str]
) -> tuple[Element, ...]:
    """At most `MAX_ELEMENTS` of a trajectory's elements, from index `first` on."""
    calls = {number: piece.call.identity for number, piece in enumerate(pieces) if piece.call is not None}
    first_calls = {identity: number for number, identity in reversed(calls.items())}
    elements = []
    for number, piece in enumerate(pieces[first : first + MAX_ELEMENTS], first):
        text = _SNIPPET.sub("", piece.text).strip() if piece.kind == "result" else piece.text
        observation = piece.segment.observation if piece.segment is not None else None
        elements.append(
            Element(
                index=number,
                kind=piece.kind,
                name=piece.name,
                stage=piece.stage or "",
                turn=piece.turn,
                text=text[:MAX_TEXT],
                length=count_units(piece.text),
                closed=piece.is_closed,
                sections=tuple(
                    SectionView(
                        name=section.name,
                        text=piece.text[section.start : section.end][:MAX_TEXT],
                        start=count_units(piece.text[: section.start]),
                        end=count_units(piece.text[: section.end]),
                    )
                    for section in piece.sections
                ),
                call=piece.call.model_copy(update={"query": piece.call.query[:MAX_TEXT]}) if piece.call else None,
                repeated=number in calls and first_calls[calls[number]] != number,
                status=observation.status.value if observation is not None and observation.status else "",
                snippets=_snippets(piece.segment, cited) if piece.segment is not None else (),
                citations=_citations(piece.text, shown) if piece.kind == "answer" else (),
            )
        )
    return tuple(elements)


def _snippets(segment: Segment, cited: Collection[str]) -> tuple[SnippetView, ...]:
    sources = sources_of(segment)
    return tuple(
        SnippetView(
            id=snippet_id,
            title=sources[snippet_id].title if snippet_id in sources else "",
            url=sources[snippet_id].url if snippet_id in sources else "",
            text=text[:MAX_SNIPPET],
            cited=snippet_id in cited,
        )
        for snippet_id, text in snippet_texts(segment)
    )


def _citations(answer: str, shown: Collection[str]) -> tuple[CitationView, ...]:
    return tuple(
        CitationView(
            ids=citation.ids,
            claim=citation.claim[:MAX_TEXT],
            start=count_units(answer[: citation.start]),
            end=count_units(answer[: citation.end]),
            known=tuple(snippet_id for snippet_id in citation.ids if snippet_id in shown),
        )
        for citation in islice(find_citations(answer), MAX_CITATIONS)
    )
