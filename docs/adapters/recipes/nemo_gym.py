"""NeMo Gym: a resources server whose sessions are episodes.

Start it with ResearchServer.run_webserver(), and train with nemo_gym's `gymnasium_agent`.
Its agent sums the rewards of the steps, so training sees a scalar; the four scores are in the last step's info.
Rows of its data set carry `query_key`.
"""

from typing import Any

from nemo_gym.openai_utils import NeMoGymResponse
from resources_servers.gymnasium import GymnasiumServer, extract_text

from rubricem_env.adapters import EpisodeSession, offline_env_spec

ENV_SPEC = offline_env_spec(group_size=4)


class ResearchServer(GymnasiumServer):
    """One session for each rollout."""

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        session = EpisodeSession(ENV_SPEC, ENV_SPEC.query(metadata["query_key"]))
        self.session_state[str(session_id)] = session
        return session.prompt, {"query_key": metadata["query_key"]}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        session: EpisodeSession = self.session_state[str(session_id)]
        return await session.step(extract_text(action))
