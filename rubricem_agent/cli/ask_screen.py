"""An episode on the terminal while it happens: stages as headings, searches and what they found, the answer as it grows."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rubricem_agent.rollout.sources import sources_in
from rubricem_env.domain.stage import Stage
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, STATE_EVALUATION, THINK
from rubricem_env.scaffold.lexer import Scanner, Token, parse_attributes

_COLOURS: Mapping[Stage, str] = MappingProxyType(
    {Stage.PLAN: "34", Stage.RESEARCH: "33", Stage.REVIEW: "35", Stage.ANSWER: "32"}
)
_LABELS: Mapping[str, str] = MappingProxyType(
    {
        THINK: "thinking",
        STATE_EVALUATION: "so far",
        "deep_analysis": "what is asked",
        "rubric": "rubric",
        "research_plan": "steps",
        "rubric_review": "against the rubric",
        "writing_plan": "how to write it",
    }
)
_GREY = "90"
_WIDTH = 80
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CITATION = re.compile(r"""<(/?)cite(?![\w-])(?:\s+ids?\s*=\s*["']?([^"'<>]*)["']?)?[^<>]*>""", re.IGNORECASE)
_UNDECIDED = re.compile(r"<[^<>]{0,200}\Z")
_WRAPPERS = re.compile(r"</?tool_output>|</?snippet[^>]*>")


class AskScreen:
    """The audience of one episode. Writes plain text, with colour codes where it is a terminal."""

    def __init__(self, write: Callable[[str], None], *, colour: bool) -> None:
        self._write = write
        self._colour = colour
        self._stage: Stage | None = None
        self._has_planned = False
        self._scanner = Scanner()
        self._text = ""
        self._at = 0
        self._cited = ""
        self._grey = False
        self._needs_indent = True

    def wrote(self, text: str) -> None:
        """Show what is certain not to be the beginning of a tag."""
        self._text += text
        for token in self._scanner.feed(text):
            self._show(self._text[self._at : token.start])
            self._at = token.end
            self._enter(token)
        undecided = _UNDECIDED.search(self._text, self._at)
        until = undecided.start() if undecided else len(self._text)
        if until > self._at:
            self._show(self._text[self._at : until])
            self._at = until

    def restarted(self) -> None:
        """Say that what was shown of the turn does not count."""
        self._line("the connection broke; the turn begins anew")
        self._begin_turn()

    def observed(self, text: str) -> None:
        """List the sources that came back; a notice or an error is shown as it is."""
        self._begin_turn()
        sources = sources_in(text)
        for snippet_id, source in sources.items():
            self._line(f"  {snippet_id}  {' | '.join(part for part in source if part) or '(untitled)'}")
        if not sources:
            self._line("  " + " ".join(_WRAPPERS.sub(" ", text).split())[:300])

    def _begin_turn(self) -> None:
        self._scanner = Scanner()
        self._text = ""
        self._at = 0
        self._cited = ""
        self._grey = False
        self._needs_indent = True

    def _enter(self, token: Token) -> None:
        if self._grey and token.name != THINK:
            self._show(token.tag)
        elif token.closing:
            self._grey = False
        else:
            self._open(token)

    def _open(self, token: Token) -> None:
        stage = self._stage_of(token.name)
        if stage is not self._stage:
            self._stage = stage
            heading = f"\n\n── {stage.value.upper()} ".ljust(_WIDTH, "─")
            self._write(self._painted(heading, f"1;{_COLOURS[stage]}"))
            self._needs_indent = True
        self._grey = token.name == THINK
        if token.name == CALL_TOOL:
            self._write(self._painted(f"\n  → {parse_attributes(token).values.get('name', '?')}: ", "1"))
            self._needs_indent = False
        elif token.name in _LABELS:
            self._write(self._painted(f"\n  {_LABELS[token.name]}: ", _GREY if self._grey else "1"))
            self._needs_indent = False

    def _stage_of(self, name: str) -> Stage:
        """The stage to show a tag under, as far as one can know while it is being written."""
        if name == PLAN and not self._has_planned:
            self._has_planned = True
            return Stage.PLAN
        if name in (CALL_TOOL, STATE_EVALUATION):
            return Stage.RESEARCH
        if name in (REVIEW, ANSWER):
            return Stage.REVIEW if name == REVIEW else Stage.ANSWER
        return self._stage or Stage.PLAN

    def _show(self, text: str) -> None:
        printable = _CONTROL.sub("", _CITATION.sub(self._mark, text))
        if self._needs_indent:
            printable = printable.lstrip("\n")
        if not printable or (self._needs_indent and not printable.strip()):
            return
        begins = "\n  " if self._needs_indent else ""
        self._needs_indent = False
        self._write(self._painted(begins + printable.replace("\n", "\n  "), _GREY if self._grey else ""))

    def _mark(self, tag: re.Match[str]) -> str:
        """A citation's opening tag is not shown; at its closing tag stand the ids that it named."""
        if not tag[1]:
            self._cited = tag[2]
            return ""
        return f" [{self._cited}]" if self._cited else ""

    def _line(self, text: str) -> None:
        self._write("\n" + self._painted(_CONTROL.sub("", text), _GREY))

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text
