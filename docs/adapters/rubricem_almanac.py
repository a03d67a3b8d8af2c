"""A verifiers plugin: the almanac, judged offline by rules within groups of four. Put its folder on PYTHONPATH."""

import os

from rubricem_env.adapters.gathering import GatheringScorer
from rubricem_env.adapters.session import make_setup
from rubricem_env.adapters.verifiers import ResearchHarness, ResearchTaskset
from rubricem_env.env.offline import offline_queries
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.scorer import GroupScorer
from rubricem_env.judge.step import StepJudge

GROUP_SIZE = int(os.environ.get("RUBRICEM_GROUP_SIZE", "4"))
"""The same as the number of rollouts that the run asks for."""
_QUERIES = offline_queries()
_SCORER = GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {query.key: query for query in _QUERIES})


class AlmanacTaskset(ResearchTaskset):
    """The training questions of the shipped almanac."""

    research = make_setup(queries=_QUERIES, scorer=GatheringScorer(_SCORER, GROUP_SIZE, patience=120.0))


class AlmanacHarness(ResearchHarness):
    """Plays them with the shipped tools."""

    research = AlmanacTaskset.research


__all__ = ["AlmanacHarness", "AlmanacTaskset"]
