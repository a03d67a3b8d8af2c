"""The environment handed a judge: a vector of one question's episodes is scored as a group, a single one alone."""

from rubricem_env.domain.trajectory import Query, Snippet, ToolResult, ToolStatus
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.rewards import Scorer
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.judge.group_scorer import GroupScorer
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.testing.judges import QUESTION
from tests.fakes import rubric

GIVEN = rubric("Names the width of Tall Fox", persistent=True)
QUERY = Query(question=QUESTION, rubrics=(GIVEN,))


class OnePage:
    names = ("google_search",)

    async def call(self, call):
        return ToolResult(status=ToolStatus.OK, snippets=(Snippet(text="The width of Tall Fox is 60 m."),))


def scorer() -> Scorer:
    return GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {QUERY.key: QUERY})


def test_a_group_of_episodes_is_contrasted_in_one_call():
    group = scorer()
    envs = DeepResearchVectorEnv(2, queries=(QUERY,), toolbox=OnePage(), reward="answer", scorer=group)
    envs.reset(seed=0)
    turns = ("<answer>The width of Tall Fox is 60 m; Amber Badger is wider.</answer>", "<answer>No idea.</answer>")
    _, rewards, terminated, _, _ = envs.step(turns)
    envs.close()
    assert terminated.all()
    assert rewards[0] > rewards[1]


def test_a_single_episode_is_scored_by_persistent_rubrics_alone():
    env = DeepResearchEnv(queries=(QUERY,), toolbox=OnePage(), reward="answer", scorer=scorer())
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("<answer>The width of Tall Fox is 60 m.</answer>")
    env.close()
    # width, tall, fox: all three key terms of the only rubric
    assert (reward, terminated, info["score_answer"]) == (1.0, True, 1.0)
