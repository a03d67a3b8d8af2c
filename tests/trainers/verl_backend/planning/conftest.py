"""The paper's recipe, and a machine with everything that it needs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rubricem_agent.wiring.probe import Probe
from trainers.verl_backend.planning.preflight import Machine
from trainers.verl_backend.planning.run_shape import RunShape, read_run_file, read_run_shape

CONFIGS = Path(__file__).parents[4] / "configs"
RECIPE = CONFIGS / "verl_rubricem_8b.yaml"
INSTALLED = {
    "verl": "0.9.1",
    "ray": "2.60.0",
    "hydra-core": "1.3.8",
    "tensordict": "0.10.0",
    "TransferQueue": "0.1.11",
    "cachetools": "8.0.0",
    "fastapi": "0.136.3",
    "uvicorn": "0.51.0",
    "torch": "2.11.0+cu129",
    "vllm": "0.24.0",
    "transformers": "5.9.0",
    "flash-attn": "2.8.3",
    "sentence-transformers": "6.2.0",
}


@dataclass
class FakeMachine(Machine):
    """A machine of any size."""

    versions: dict[str, str] = field(default_factory=lambda: dict(INSTALLED))
    gpus: list[float] = field(default_factory=lambda: [79.6] * 8)
    free: float = 10_000.0
    memory: float = 2_000.0
    silent: dict[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=lambda: {"GEMINI_API_KEY": "x", "S2_API_KEY": "x"})

    def version_of(self, package: str) -> str | None:
        return self.versions.get(package)

    def gpu_gib(self) -> list[float]:
        return self.gpus

    def free_gib(self, folder: Path) -> float:
        return self.free

    def find_silent(self, probes: Iterable[Probe]) -> dict[str, str]:
        return {what: self.silent[what] for what, _ in probes if what in self.silent}

    def memory_gib(self) -> float:
        return self.memory


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def recipe() -> Callable[..., RunShape]:
    """The shape of the paper's recipe with changes."""
    return lambda *changes: read_run_shape(read_run_file(RECIPE, changes))


@pytest.fixture
def almanac() -> dict[str, Any]:
    return {"rubricem": {"almanac": {}}}
