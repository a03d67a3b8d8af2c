"""The lane runs in an environment of its own; elsewhere its tests are skipped."""

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from rubricem_agent.policy.base import model_folder

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _end_tidily():
    """Clean up at SIGTERM, with which `timeout` ends the lane: Python would leave the runs and their Ray behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def policy():
    return model_folder(Path("tiny"))
