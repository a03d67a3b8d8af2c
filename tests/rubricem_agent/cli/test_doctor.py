"""What doctor says of packages (absent, outside the tested range, in conflict) and of keys."""

from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement

from rubricem_agent.cli.doctor import CONFLICTS, check_extra, check_keys, find_conflicts
from rubricem_agent.wiring.models import ANTHROPIC_KEY, JUDGE_KEY, OPENAI_KEY, POLICY_KEY, TEACHER_KEY
from rubricem_agent.wiring.tools import TOKEN_VARIABLE, TOOL_KEYS


@pytest.mark.parametrize(
    ("extra", "requirement", "state", "detail", "remedy"),
    [
        ("judge", "pydantic>=2", "ok", "pydantic", ""),
        ("bank", "no-such-package", "missing", "without no-such-package", "pip install 'rubricem[bank]'"),
        ("", "pydantic<1", "wrong", "tested: <1", "pip install rubricem"),
    ],
)
def test_an_extra_is_ok_missing_or_outside_its_tested_range(extra, requirement, state, detail, remedy):
    judged = check_extra(extra, [Requirement(requirement)])
    assert (judged.state, judged.remedy) == (state, remedy)
    assert detail in judged.detail


def test_two_extras_whose_pins_exclude_each_other_are_wrong_together_with_the_reason_and_the_way_out():
    (found,) = find_conflicts({"verifiers", "openenv", "gem"})
    assert (found.name, found.state) == ("verifiers + openenv", "wrong")
    assert found.remedy == "verifiers pins mcp 2.0.0 and openenv needs mcp below 2: use one environment for each."


def test_each_of_them_alone_is_fine():
    assert [find_conflicts({first, "gem"}) + find_conflicts({second, "gem"}) for first, second, _ in CONFLICTS] == [
        [] for _ in CONFLICTS
    ]


def test_the_conflicts_with_the_tools_are_those_of_its_requirement():
    tools = next(Requirement(text) for text in requires("rubricem") if text.startswith("mcp") and "tools" in text)
    # What verifiers pins, and the last that OpenEnv takes.
    assert not any(tools.specifier.contains(version) for version in ("2.0.0", "1.30.0"))


def test_doctor_names_every_variable_that_the_commands_read_a_key_from():
    found = {finding.name: finding for finding in check_keys({JUDGE_KEY: "canary"})}
    assert {POLICY_KEY, JUDGE_KEY, TEACHER_KEY, OPENAI_KEY, ANTHROPIC_KEY, TOKEN_VARIABLE} <= set(found)
    # The row of Gemini's key names its other variable.
    assert {*filter(None, TOOL_KEYS)} - {"GOOGLE_API_KEY"} <= set(found)
    assert (found[JUDGE_KEY].state, found[JUDGE_KEY].remedy) == ("ok", "")
    assert "no other address" in found[OPENAI_KEY].remedy
