"""The facts of one attempt that the rules score: sections, requirements, queries and calls."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.judge.rules.key_terms import key_terms, plain_text
from rubricem_env.scaffold.claims import answered_calls, is_same_query
from rubricem_env.scaffold.grammar import STATE_EVALUATION, grammar_of
from rubricem_env.scaffold.parsed import ParsedTrajectory

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[[ xX]?\])\s*(?P<item>\S.*)$", re.M)
_SNIPPET_ID = re.compile(r"\b[A-Za-z]{1,8}_[\w-]+\b")


class Facts(NamedTuple):
    """One attempt at one question."""

    question_terms: tuple[str, ...]
    parsed: ParsedTrajectory
    calls: tuple[tuple[ToolCall, ToolStatus | None], ...]
    """Each executed call with its status, which is None in files that do not say."""

    def stage_text(self, stage: str) -> str:
        return plain_text(self.parsed.stage_text(stage))

    @property
    def answer_text(self) -> str:
        """The text of the last stage."""
        return self.stage_text(self.parsed.stages[-1])

    def section(self, name: str) -> str:
        """One section of the first plan or the last review; empty where it was not written."""
        scaffold = self.parsed.scaffold
        parent = grammar_of(scaffold).parents.get(name, "")
        closes = any(form.ends_with == parent for form in scaffold.stages)
        blocks = [(block, turn.text) for turn in self.parsed.turns for block in turn.named(parent)]
        for block, text in blocks[:1] if closes else blocks[-1:]:
            return next((section.inner(text) for section in block.sections if section.name == name), "")
        return ""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The items of the plan's own rubric; its lines, where it is not a list."""
        text = self.section("rubric")
        items = [match["item"].strip() for match in _ITEM.finditer(text)] or [
            line.strip() for line in text.splitlines()
        ]
        return tuple(dict.fromkeys(item for item in items if len(key_terms(item)) > 1))

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(call.query for call, _ in self.calls)

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The state evaluations, in order."""
        return tuple(block.inner(turn.text) for turn in self.parsed.turns for block in turn.named(STATE_EVALUATION))

    def known_ids(self, text: str) -> tuple[str, ...]:
        """Shown snippets that the text names."""
        return tuple(
            dict.fromkeys(snippet_id for snippet_id in _SNIPPET_ID.findall(text) if snippet_id in self.parsed.shown)
        )


def gather_facts(question: str, parsed: ParsedTrajectory) -> Facts:
    """The facts of one attempt."""
    return Facts(question_terms=key_terms(question), parsed=parsed, calls=tuple(_calls(parsed)))


def _calls(parsed: ParsedTrajectory) -> Iterator[tuple[ToolCall, ToolStatus | None]]:
    """The executed calls as the episode recorded them; in files from elsewhere, as the policy wrote them.

    A record of a call that the policy did not write is a file's own claim and counts as the policy's call, if any.
    """
    answers = list(answered_calls(parsed))
    if all(segment.observation is None for segment, _ in answers):
        yield from ((turn.call, None) for turn in parsed.turns if turn.call is not None)
    for segment, written in answers:
        record = segment.observation
        if record is not None and record.call is not None and record.status is not None and written is not None:
            yield record.call if is_same_query(record.call, written) else written, record.status
