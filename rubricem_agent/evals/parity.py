"""Parity: recorded verdicts replayed through our scorers, and every disagreement with the official numbers.

Any file of the recorded shape will do; nothing here knows particular rows. A unit that is not known counts as a
disagreement, never as agreement.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.recorded import (
    deepsearchqa,
    drb_fact,
    drb_race,
    drtulu_io,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
from rubricem_agent.evals.recorded.case import RecordedCase, read_cases
from rubricem_agent.evals.recorded.comparison import case_differences, differences_at
from rubricem_agent.evals.recorded.unit import CaseInput, Scorer, Unit

UNITS: Mapping[str, Mapping[str, Unit]] = {
    "deepsearchqa": deepsearchqa.UNITS,
    "drb_fact": drb_fact.UNITS,
    "drb_race": drb_race.UNITS,
    "drtulu_io": drtulu_io.UNITS,
    "healthbench": healthbench.UNITS,
    "researchqa": researchqa.UNITS,
    "researchrubrics": researchrubrics.UNITS,
    "simpleqa": simpleqa.UNITS,
    "twowiki": twowiki.UNITS,
    "webwalkerqa": webwalkerqa.UNITS,
}

AGREED, DISAGREED, UNREADABLE = 0, 1, 2
"""The exit codes of `rubricem parity`."""


class Disagreement(NamedTuple):
    """A case on which we differ, and every difference in a sentence of its own."""

    id: str
    differences: tuple[str, ...]


class FileParity(NamedTuple):
    """The result for one file, disagreements in file order."""

    agreed: int
    total: int
    disagreements: tuple[Disagreement, ...]


def replay(path: Path) -> FileParity:
    """Replay every case of a file. Raises RecordedCaseError, with the line number, where a line is not a case."""
    cases = read_cases(path)
    compared = (Disagreement(case.id, tuple(replay_case(case))) for case in cases)
    disagreements = tuple(outcome for outcome in compared if outcome.differences)
    return FileParity(len(cases) - len(disagreements), len(cases), disagreements)


def replay_case(case: RecordedCase) -> list[str]:
    """The differences of one case, variants included; empty where we agree."""
    unit = UNITS.get(case.benchmark, {}).get(case.unit)
    if unit is None:
        return [f"no scorer is known for unit {case.unit!r} of benchmark {case.benchmark!r}; it was not replayed"]
    try:
        differences = case_differences(case.expected, _computed(unit.score, case.input))
        for name, expected in case.variants.items():
            if name not in unit.variants:
                differences.append(f"variants: no scorer is known for {name!r}; it was not replayed")
                continue
            differences.extend(
                differences_at(
                    f"variants.{name}", expected=expected, computed=_computed(unit.variants[name], case.input)
                )
            )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return [f"the input does not fit unit {case.unit!r}: {where}: {first['msg']}"]
    return differences


def _computed(score: Scorer, case_input: CaseInput) -> object:
    try:
        return score(case_input)
    except ScoringError as error:
        counted = {} if error.judge_calls is None else {"judge_calls": error.judge_calls}
        return {"error": error.official} | counted
