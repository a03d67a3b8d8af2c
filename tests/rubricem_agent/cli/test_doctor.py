"""What doctor says of packages (absent, outside the tested range, in conflict) and of keys."""

from importlib.metadata import requires

from packaging.requirements import Requirement

from rubricem_agent.build.data import TEACHER_KEY
from rubricem_agent.build.models import JUDGE_KEY, OPENAI_KEY, POLICY_KEY
from rubricem_agent.build.tools import TOKEN_VARIABLE
from rubricem_agent.cli.doctor import CONFLICTS, check_extra, check_keys, find_conflicts


def test_a_package_in_its_range_is_ok():
    assert check_extra("judge", [Requirement("pydantic>=2")]).state == "ok"


def test_an_absent_package_is_missing_with_the_line_that_installs_it():
    judged = check_extra("bank", [Requirement("no-such-package-at-all")])
    assert judged.state == "missing"
    assert judged.remedy == "pip install 'rubricem[bank]'"


def test_a_version_outside_the_tested_range_is_wrong_and_the_range_is_told():
    judged = check_extra("", [Requirement("pydantic<1")])
    assert judged.state == "wrong"
    assert "tested: <1" in judged.detail
    assert judged.remedy == "pip install rubricem"


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


def test_each_key_is_named_with_where_it_goes():
    found = {finding.name: finding for finding in check_keys({"RUBRICEM_JUDGE_KEY": "canary"})}
    assert "api.openai.com" in found["OPENAI_API_KEY"].remedy
    assert "no other address" in found["OPENAI_API_KEY"].remedy
    assert "--policy" in found["RUBRICEM_POLICY_KEY"].remedy
    assert (found["RUBRICEM_JUDGE_KEY"].state, found["RUBRICEM_JUDGE_KEY"].remedy) == ("ok", "")
    assert "GOOGLE_API_KEY" in found["GEMINI_API_KEY"].remedy


def test_doctor_names_every_variable_that_the_commands_read_a_key_from():
    read = {POLICY_KEY, JUDGE_KEY, TEACHER_KEY, OPENAI_KEY, TOKEN_VARIABLE}
    assert read <= {finding.name for finding in check_keys({})}
