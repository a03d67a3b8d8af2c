"""The version that a run writes down."""

import re

from rubricem_agent.learn.code_version import code_version


def test_it_is_the_release_and_in_a_clone_the_commit():
    assert re.fullmatch(r"rubricem \d+\.\d+\.\d+\S*(, commit [0-9a-f]{7,40}(-dirty)?)?", code_version())
