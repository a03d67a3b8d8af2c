"""Deep research in four stages as an OpenReward environment: python server.py serves it on port 8080.

The questions and pages are the almanac's, a small world that is in the package. One tool takes a turn of the scaffold;
rules judge the episode at its end, and the attempts at one question together when a trainer asks for it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from openreward.environments import Environment, Server, TextBlock, ToolOutput, tool
from openreward.environments.types import GroupCandidate, GroupScore, Message
from pydantic import BaseModel, Field

from rubricem_agent.prompting import agent_prompt
from rubricem_env.adapters import EpisodeSession, make_env_spec, offline_scorer
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env import shipped_toolbox
from rubricem_env.env.rewards import score_info

RULES = agent_prompt(shipped_toolbox().names)
SYSTEM = (
    RULES.system + "\n\nSend each of your turns with the tool `write`, as its `text`; its result is what the tools of "
    "the scaffold found. Do not answer outside of it."
)
ENV_SPEC = make_env_spec(prompt=lambda query: RULES.opening(query).user, system=SYSTEM)
JUDGED = make_env_spec(reward="answer", scorer=offline_scorer(ENV_SPEC.queries), prompt=ENV_SPEC.prompt, system=SYSTEM)


class Turn(BaseModel):
    """One turn of the policy."""

    text: str = Field(description="The turn: the tags of the scaffold, ending with a tool call or with the answer.")


class DeepResearch(Environment):
    """A question of the almanac, researched and answered in four stages."""

    def __init__(self, task_spec: Mapping[str, Any], secrets: dict[str, str] | None = None) -> None:
        super().__init__(task_spec, secrets or {})
        self.query = ENV_SPEC.query(str(task_spec["key"]))
        self.episode = EpisodeSession(JUDGED, self.query)

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[Mapping[str, Any]]:
        if split not in cls.list_splits():
            raise ValueError(f"there is no split {split!r}; the split is 'train'.")
        return [{"id": query.key, "key": query.key, "question": query.question} for query in ENV_SPEC.queries]

    def get_messages(self) -> list[Message]:
        texts = {"system": SYSTEM, "user": self.episode.prompt}
        return [Message(role=role, blocks=[TextBlock(text=text)]) for role, text in texts.items()]

    def teardown(self) -> None:
        self.episode.abandon()

    @tool
    async def write(self, turn: Turn) -> ToolOutput:
        """Write the next turn. The result is what the turn's search found, or says that the episode is over."""
        step = await self.episode.step(turn.text)
        if not step.is_over:
            return ToolOutput(blocks=[TextBlock(text=step.observation)])
        ending = f"The episode is over: {self.episode.trajectory.ending}."
        return ToolOutput(
            blocks=[TextBlock(text=ending)], reward=step.reward, finished=True, metadata=stages(step.info)
        )

    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[GroupScore]:
        """The answers' scores after contrasting the attempts with each other; the metadata has those of all stages.

        An attempt is what its calls of `write` wrote, played again: pages do not change, so the searches find the same.
        """
        attempts = await asyncio.gather(*(self.replay(candidate) for candidate in candidates))
        scores = []
        for judgement in await offline_scorer([self.query]).score(attempts):
            answer = judgement.score(Stage.ANSWER)
            if answer is None:
                raise RuntimeError("the judge gave no score for an answer; ask again.")
            scores.append(GroupScore(reward=answer, metadata=stages(score_info(judgement, STAGES))))
        return scores

    async def replay(self, candidate: GroupCandidate) -> Trajectory:
        session = EpisodeSession(ENV_SPEC, self.query)
        for message in candidate.messages:
            for block in message.blocks:
                if block.type == "tool_call" and block.name == "write" and not session.is_over:
                    await session.step(str(block.input.get("text", "")))
        session.abandon()
        return session.trajectory


def stages(info: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of the four stages, and the reasons where one is missing."""
    return {name: value for name, value in info.items() if name.startswith(("score_", "unscored_"))}


if __name__ == "__main__":
    Server([DeepResearch]).run()
