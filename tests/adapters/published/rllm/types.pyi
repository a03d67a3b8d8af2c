# ruff: noqa
# mypy: disable-error-code="type-arg"
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, Field

_DEFAULT_TRAJ_NAME: str

class Step(BaseModel):
    reward: float = 0.0
    done: bool = False
    metadata: dict | None = None
    prompt_ids: list[int] | list[Any] = Field(default_factory=list)
    response_ids: list[int] = Field(default_factory=list)
    logprobs: list[float] = Field(default_factory=list)
    chat_completions: list[dict[str, Any]] = Field(default_factory=list)
    advantage: list[float] | float | None = None

class Trajectory(BaseModel):
    name: str = _DEFAULT_TRAJ_NAME
    task: Any = None
    steps: list[Step] = Field(default_factory=list)
    reward: float | None = None
    signals: dict[str, float] = Field(default_factory=dict)
    metadata: dict | None = None

class Episode(BaseModel):
    task: Any = None
    is_correct: bool = False
    trajectories: list[Trajectory] = Field(default_factory=list)
    metrics: dict = Field(default_factory=dict)
    metadata: dict = Field(default_factory=dict)

@dataclass
class AgentConfig:
    base_url: str
    model: str
    session_uid: str
    metadata: dict = field(default_factory=dict)
    is_validation: bool = False
    sampling_params: dict = field(default_factory=dict)

class AgentFlow(Protocol):
    def run(self, task: Any, config: AgentConfig) -> Episode | Trajectory | None: ...
