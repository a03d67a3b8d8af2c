"""The pieces of a trajectory as elements of the API: with sections, calls, snippets and citations, cut to a size."""

import re
from collections.abc import Collection, Sequence

from rubricem_agent.rollout.sources import sources_in
from rubricem_agent.viewer.api_models.trajectories import (
    Band,
    CallView,
    CitationView,
    Element,
    ElementText,
    ResultView,
    SectionView,
    SnippetView,
)
from rubricem_agent.viewer.pieces import Piece, stage_runs
from rubricem_agent.viewer.utf16 import Utf16
from rubricem_env.domain.trajectory import Segment
from rubricem_env.scaffold.citations import find_citations

MAX_TEXT = 20_000
MAX_SNIPPET = 8_000
MAX_ELEMENTS = 200
MAX_CITATIONS = 500
_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>\n?', re.DOTALL)


class ElementMaker:
    """Makes the elements of one trajectory."""

    def __init__(self, pieces: Sequence[Piece], *, cited: Collection[str], shown: Collection[str]) -> None:
        self._pieces = pieces
        self._cited = frozenset(cited)
        self._shown = frozenset(shown)
        self._repeated = _repeated_calls(pieces)

    def page(self, first: int) -> tuple[Element, ...]:
        """At most `MAX_ELEMENTS` from one on."""
        last = min(first + MAX_ELEMENTS, len(self._pieces))
        return tuple(self._element(number) for number in range(first, last))

    def _element(self, number: int) -> Element:
        piece = self._pieces[number]
        units = Utf16(piece.text)
        text = _SNIPPET.sub("", piece.text).strip() if piece.kind == "result" else piece.text
        return Element(
            index=number,
            kind=piece.kind,
            stage=piece.stage.value if piece.stage else "",
            turn=piece.turn,
            text=text[:MAX_TEXT],
            length=units.length,
            closed=piece.is_closed,
            sections=tuple(
                SectionView(name=name, text=piece.text[start:end][:MAX_TEXT], start=units.at(start), end=units.at(end))
                for name, start, end in piece.sections
            ),
            call=self._call(number),
            result=self._result(piece.segment) if piece.segment is not None else None,
            citations=self._citations(piece.text, units) if piece.kind == "answer" else (),
        )

    def _call(self, number: int) -> CallView | None:
        call = self._pieces[number].call
        if call is None:
            return None
        return CallView(
            tool=call.name, query=call.query[:MAX_TEXT], parameters=call.parameters, repeated=number in self._repeated
        )

    def _result(self, segment: Segment) -> ResultView:
        sources = sources_in(segment.text)
        snippets = []
        for snippet_id, body in _SNIPPET.findall(segment.text):
            source = sources[snippet_id]
            has_head = bool(source.title or source.url)
            snippets.append(
                SnippetView(
                    id=snippet_id,
                    title=source.title,
                    url=source.url,
                    text=(body.partition("\n")[2] if has_head else body)[:MAX_SNIPPET],
                    cited=snippet_id in self._cited,
                )
            )
        status = segment.observation.status if segment.observation is not None else None
        return ResultView(status=status.value if status else "", snippets=tuple(snippets))

    def _citations(self, answer: str, units: Utf16) -> tuple[CitationView, ...]:
        found = list(find_citations(answer))[:MAX_CITATIONS]
        return tuple(
            CitationView(
                ids=citation.ids,
                claim=citation.claim[:MAX_TEXT],
                start=units.at(citation.start),
                end=units.at(citation.end),
                known=tuple(one for one in citation.ids if one in self._shown),
            )
            for citation in found
        )


def make_bands(pieces: Sequence[Piece]) -> tuple[Band, ...]:
    """The stages as runs of elements."""
    return tuple(Band(stage=stage.value, first=first, last=last) for stage, first, last in stage_runs(pieces))


def element_text(pieces: Sequence[Piece], number: int, *, offset: int) -> ElementText:
    """A part of an element's text from a UTF-16 offset on; of a tool's answer, the whole observation."""
    text = pieces[number].text
    units = Utf16(text)
    start = units.character(min(offset, units.length))
    part = text[start : start + MAX_TEXT]
    end = start + len(part)
    return ElementText(
        index=number,
        offset=units.at(start),
        text=part,
        next_offset=units.at(end) if end < len(text) else None,
    )


def _repeated_calls(pieces: Sequence[Piece]) -> frozenset[int]:
    """The calls that ask the same thing as an earlier one."""
    asked = set()
    repeated = set()
    for number, piece in enumerate(pieces):
        if piece.call is not None:
            if piece.call.identity in asked:
                repeated.add(number)
            asked.add(piece.call.identity)
    return frozenset(repeated)
