"""The scripted analyst: writes traces over tables turn by turn, in reaction to the results of `run_sql`.

It knows the right query of its question, but reports only a number that a result has shown, unless one of its faults
makes it. Its language is small, so that a policy of a few million parameters can learn it.
"""

import re
from collections.abc import Sequence

from rubricem_env.world.tables.analyst_faults import NO_ANALYST_SLIPS, AnalystSlips
from rubricem_env.world.tables.criteria import numbers_in
from rubricem_env.world.tables.questions import OUTDATED, TableQuestion

_RESULT = re.compile(r'<snippet id="([^"]+)">[^\n]*\n[^\n]*\n[^\n]*\n(.*?)</snippet>', re.DOTALL)


class TableAnalyst:
    """The analyst for one question. The same observations give the same turns: it has no other state."""

    def __init__(self, question: TableQuestion, slips: AnalystSlips = NO_ANALYST_SLIPS) -> None:
        self.question = question
        self.slips = slips

    def turn(self, observations: Sequence[str]) -> str:
        """The next turn, after all observations so far: the frame and a query, or the report."""
        if not observations:
            return self._frame() + self._call()
        name, number = _last_result(observations)
        said = f"{name} gives {number}." if number else "No number."
        if len(observations) == 1 and self.slips.repeats_query:
            return f"<think>I read the result.</think><reading>{said} Again.</reading>{self._call()}"
        return f"<think>I read the result.</think><reading>{said}</reading>{self._report(name, number)}"

    def _frame(self) -> str:
        """The tables, the filters and the unit, as far as the slips leave them right."""
        question, kind = self.question, self.slips.framed.kind if self.slips.framed else ""
        read = self.slips.framed.sql if self.slips.framed else question.sql
        tables = [name for name in question.tables if re.search(rf"\b{name}\b", read)]
        tables += [name for name in OUTDATED if re.search(rf"\b{name}\b", read)]
        filters = question.filters[:-1] if kind == "missing_filter" else question.filters
        unit = "as it is" if kind == "wrong_unit" else question.unit or "a count"
        return (
            f"<think>This needs {len(tables)} table{'s' * (len(tables) > 1)}.</think>"
            f"<frame><tables>{', '.join(tables)}</tables><filters>{', '.join(filters)}</filters>"
            f"<unit>{unit}</unit></frame>"
        )

    def _call(self) -> str:
        mistake = self.slips.mistake
        return f'<call_tool name="run_sql">{mistake.sql if mistake else self.question.sql}</call_tool>'

    def _report(self, name: str, number: str) -> str:
        number = self.slips.invented or number
        if not number:
            return "<report>The tables do not say.</report>"
        unit = "" if self.slips.forgets_unit or not self.question.unit else f" {self.question.unit}"
        said = f"{number}{unit}"
        cited = said if self.slips.forgets_citation or not name else f'<cite id="{name}">{said}</cite>'
        return f"<report>It is {cited}.</report>"


def _last_result(observations: Sequence[str]) -> tuple[str, str]:
    """The id of the last result and its first number; empty where a query has failed."""
    found = _RESULT.findall(observations[-1])
    if not found:
        return "", ""
    name, rows = found[-1]
    return name, next(iter(numbers_in(rows)), "")
