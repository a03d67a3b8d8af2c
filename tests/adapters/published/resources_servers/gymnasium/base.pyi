# ruff: noqa
# mypy: disable-error-code="type-arg"
from abc import abstractmethod
from typing import Any, Dict, Optional

from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.openai_utils import NeMoGymResponse
from pydantic import Field

def extract_text(response: NeMoGymResponse) -> str: ...

class GymnasiumServer(SimpleResourcesServer):
    session_state: Dict[str, Any] = Field(default_factory=dict)
    async def reset(self, metadata: dict, session_id: Optional[str] = None) -> tuple[Optional[str], dict]: ...
    @abstractmethod
    async def step(
        self, action: NeMoGymResponse, metadata: dict, session_id: Optional[str] = None
    ) -> tuple[Optional[str], float, bool, bool, dict]: ...
    async def close_session(self, session_id: Optional[str]) -> None: ...
