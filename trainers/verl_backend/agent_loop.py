"""veRL's agent loop for our episodes: takes a row of the stream, gives back tokens, mask and what credit needs."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found,unused-ignore]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from rubricem_agent.learn.curriculum import Encounter
from rubricem_env.domain.query import Query
from trainers.verl_backend.desk_actor import find_desk
from trainers.verl_backend.desk_types import Meeting
from trainers.verl_backend.episode_row import OURS
from trainers.verl_backend.player import Place, Player
from trainers.verl_backend.settings import SECTION, read_section
from trainers.verl_backend.worker_share import share_of

LOOPS_FILE = Path(__file__).with_name("agent_loop.yaml")
"""Where veRL reads the name of this loop."""


class RubricEMAgentLoop(AgentLoopBase):  # type: ignore[misc,unused-ignore]
    """One for each rollout, as veRL has it; what is costly is shared by all of a process."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play one episode and wait for its marks."""
        meeting = Meeting(
            Query.model_validate_json(row["query"]), int(row["lesson_step"]), Encounter(str(row["encounter"]))
        )
        played = await _player(_described(self.config)).play(
            meeting,
            Place(str(row["uid"]), int(row["session_id"]), int(row["global_steps"])),
            client=self.server_manager,
            desk=find_desk(),
            temperature=float(sampling_params["temperature"]),
        )
        marks = played.extra_fields[OURS].marks
        return AgentLoopOutput(**played._asdict(), reward_score=marks.scores[-1], metrics=AgentLoopMetrics())


def _described(config: Any) -> str:
    """What a player is made from, as text, so that equal configs share one."""
    rollout = config.actor_rollout_ref.rollout
    section = OmegaConf.to_container(config[SECTION], resolve=True)
    length = rollout.max_model_len or rollout.prompt_length + rollout.response_length
    told = {"section": section, "model": config.actor_rollout_ref.model.path, "max_length": length}
    return json.dumps({**told, "workers": rollout.agent.num_workers})


@cache
def _player(described: str) -> Player:
    parts = json.loads(described)
    settings = read_section(parts["section"])
    share = settings.model_copy(update={"tools": share_of(settings.tools, parts["workers"])})
    return Player(share, model=Path(parts["model"]), max_length=parts["max_length"])
