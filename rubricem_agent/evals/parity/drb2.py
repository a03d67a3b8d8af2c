"""Recorded verdicts of DeepResearch Bench II: the scores of one batch, and the shares of one task."""

from rubricem_agent.evals.benchmarks.drb2 import parse_results, task_shares
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_env.domain.base import Text


def recorded_batch(rubric_items: tuple[Text, ...], judge_text: Text) -> object:
    parsed = parse_results(judge_text, rubric_items)
    return {"scores": None if isinstance(parsed, Unparsed) else parsed}


UNITS = {"batch": Unit(recorded_batch), "shares": Unit(task_shares)}
