"""Judges and requests for the tests of how far a judge can be trusted."""

from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.group import Group
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt, careless
from tests.fakes import rubric

CRITERION = rubric("speaks of the season", persistent=True)
GROUP = Group.of(Query(question=QUESTION, rubrics=(CRITERION,)), [attempt(), careless()])


def constant(score):
    return ScriptedJudge(lambda *_: score, name=f"always {score}")
