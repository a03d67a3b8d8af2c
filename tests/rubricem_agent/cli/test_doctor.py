"""What doctor says of packages: absent, outside the tested range, in conflict."""

from packaging.requirements import Requirement

from rubricem_agent.cli.doctor import judge_packages


def test_a_package_in_its_range_is_ok():
    assert judge_packages([Requirement("pydantic>=2")], "judge").state == "ok"


def test_an_absent_package_is_missing_with_the_line_that_installs_it():
    judged = judge_packages([Requirement("no-such-package-at-all")], "bank")
    assert judged.state == "missing"
    assert judged.remedy == "pip install 'rubricem[bank]'"


def test_a_version_outside_the_tested_range_is_wrong_and_the_range_is_told():
    judged = judge_packages([Requirement("pydantic<1")], "")
    assert judged.state == "wrong"
    assert "tested: <1" in judged.detail
    assert judged.remedy == "pip install rubricem"
