# ruff: noqa
# mypy: disable-error-code="misc"
from typing import Awaitable, Iterable

import pydantic

from .types import MessagesAndChoices, Tools

MetadataValue = float | int | str | bool | None

class History(pydantic.BaseModel):
    messages_and_choices: MessagesAndChoices
    tools: Tools | None = None

class Trajectory(pydantic.BaseModel):
    messages_and_choices: MessagesAndChoices = []
    tools: Tools | None = None
    additional_histories: list[History] = []
    reward: float = 0.0
    initial_policy_version: int | None = None
    final_policy_version: int | None = None
    metrics: dict[str, float | int | bool] = {}
    metadata: dict[str, MetadataValue] = {}
    logs: list[str] = []

class TrajectoryGroup(pydantic.BaseModel):
    trajectories: list[Trajectory]
    def __init__(
        self,
        trajectories: (Iterable[Trajectory | BaseException] | Iterable[Awaitable[Trajectory]]),
        *,
        exceptions: list[BaseException] = [],
        metadata: dict[str, MetadataValue] | None = None,
        metrics: dict[str, float | int | bool] | None = None,
        logs: list[str] | None = None,
    ) -> None: ...
