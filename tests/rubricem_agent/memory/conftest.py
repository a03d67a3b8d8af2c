import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.store import MemoryStore
from tests.fakes import PlaneEmbedder


@pytest.fixture
def embedder() -> PlaneEmbedder:
    return PlaneEmbedder()


@pytest.fixture
def bank(embedder: PlaneEmbedder) -> RubricBank:
    """An empty bank in memory whose questions are "at DEGREES"."""
    return RubricBank(MemoryStore(embedder="plane", dimension=2), embedder)
