"""Recorded verdicts of DRACO: the score of one task, and what one reply of the judge says."""

from rubricem_agent.evals.benchmarks.draco import DracoCriterion, normalized_score, parse_status
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_env.domain.base import Text


def recorded_task(criteria: tuple[DracoCriterion, ...], met: tuple[bool, ...]) -> object:
    weights = [criterion.weight for criterion in criteria]
    raw = sum(weight for weight, is_met in zip(weights, met, strict=True) if is_met)
    return {"score": normalized_score(weights, met), "raw_score": raw}


def recorded_status(judge_text: Text) -> object:
    status = parse_status(judge_text)
    return {"met": None if isinstance(status, Unparsed) else status}


UNITS = {"task": Unit(recorded_task), "status": Unit(recorded_status)}
