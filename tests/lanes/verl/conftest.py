"""The lane runs in an environment of its own; elsewhere its tests are skipped."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    # Not at the top: its packages come with the lane's environment.
    from tests.lanes.verl.tiny_model import write_policy

    return write_policy(tmp_path_factory.mktemp("policy") / "model")
