"""Deep research in four stages as an Inspect task: the model writes turns, the episode reads them, a judge scores it.

The questions and pages are the almanac's, a small world in the package. The judge contrasts the attempts at a question
by rules.
"""

from statistics import fmean
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, get_model
from inspect_ai.scorer import Score, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, TaskState, solver
from inspect_ai.util import collect

from rubricem_agent.prompting import agent_prompt
from rubricem_env.adapters import EpisodeSession, make_env_spec, offline_scorer
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env import shipped_toolbox
from rubricem_env.env.rewards import score_info

RULES = agent_prompt(shipped_toolbox().names)
ENV_SPEC = make_env_spec(prompt=lambda query: RULES.opening(query).user, system=RULES.system)


@task
def deep_research(attempts: int = 4) -> Task:
    """The almanac's training questions, `attempts` episodes each. The tools search its pages; nothing is fetched."""
    samples = [Sample(id=query.key, input=ENV_SPEC.prompt(query)) for query in ENV_SPEC.queries]
    return Task(dataset=MemoryDataset(samples, name="almanac"), solver=episodes(attempts), scorer=stages())


@solver
def episodes(attempts: int) -> Any:
    """Plays the attempts at a question. Tools are called in text, not through the model's own interface.

    The sample's messages are the first attempt's.
    """
    judge = offline_scorer(ENV_SPEC.queries)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        played = await collect(*(play(str(state.sample_id)) for _ in range(attempts)))
        trajectories = [trajectory for trajectory, _ in played]
        judgements = await judge.score(trajectories)
        state.messages = played[0][1]
        state.metadata["attempts"] = [
            {"ending": str(trajectory.ending), **score_info(judgement, STAGES)}
            for trajectory, judgement in zip(trajectories, judgements, strict=True)
        ]
        return state

    return solve


async def play(key: str) -> tuple[Trajectory, list[ChatMessage]]:
    """One episode, and its conversation."""
    session = EpisodeSession(ENV_SPEC, ENV_SPEC.query(key))
    messages: list[ChatMessage] = [ChatMessageSystem(content=ENV_SPEC.system), ChatMessageUser(content=session.prompt)]
    while not session.is_over:
        output = await get_model().generate(messages)
        step = await session.step(output.completion)
        messages += [output.message] if step.is_over else [output.message, ChatMessageUser(content=step.observation)]
    return session.trajectory, messages


@scorer(metrics={"*": [mean(), stderr()]})
def stages() -> Any:
    """Plan, research, review and answer, each from 0 to 1: the mean over the attempts.

    A stage that no attempt has a score for is not a number, never a zero.
    """

    async def score(state: TaskState, target: Target) -> Score:
        value = {}
        for stage in STAGES:
            given = [attempt[f"score_{stage.value}"] for attempt in state.metadata["attempts"]]
            scores = [score for score in given if score is not None]
            value[stage.value] = fmean(scores) if scores else float("nan")
        return Score(value=value, answer=state.messages[-1].text)

    return score
