"""The lane runs in an environment of its own; elsewhere its tests are skipped."""

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

TRAINED = Path(__file__).parents[3] / "runs" / "tiny_policy" / "sft" / "model"
"""What `python trainers/tiny_policy.py` leaves; one of random weights takes its place where it has not been made."""

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _end_tidily():
    """`timeout` ends the lane with SIGTERM, at which Python clears up nothing: runs and their Ray would be left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    if TRAINED.is_dir():
        return TRAINED
    # Not at the top: its packages come with the lane's environment.
    from tests.lanes.verl.tiny_model import write_policy

    return write_policy(tmp_path_factory.mktemp("policy") / "model")
