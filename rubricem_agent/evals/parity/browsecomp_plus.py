"""Recorded verdicts of BrowseComp-Plus: what one reply of the judge says."""

from rubricem_agent.evals.benchmarks.browsecomp_plus import parse_reply
from rubricem_agent.evals.parity.unit import Unit
from rubricem_env.domain.base import Text


def recorded_reply(judge_text: Text) -> object:
    verdict = parse_reply(judge_text)
    return {"correct": verdict.is_correct, "confidence": verdict.confidence, "parse_error": verdict.is_correct is None}


UNITS = {"parse": Unit(recorded_reply)}
