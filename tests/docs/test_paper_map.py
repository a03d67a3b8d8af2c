"""The map from the paper to the code names what is there, and leaves out nothing of the method."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "paper_map.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", PAGE)))
# Of the paper's source: every equation that has a label up to the theory of credit, every section of the method and
# of the appendices that describe it, the theorems that it states in the text, its tables and its algorithm.
EQUATIONS = (
    "eqa:ss-grpo",
    "eqa:oracle_grad",
    "eqa:judge_grad",
    "eqa:broadcast_grad",
    "eqa:oracle_diff",
    "eqa:judge_alignment",
)
SECTIONS = (
    "sec:method",
    "sec:scaffold",
    "sec:ssgrpo",
    "sec:evolving-policy",
    "appen:scaffold",
    "app:scaffold_sub_section",
    "app:sft-data",
    "app:stagewise_judge",
    "app:async-implementation",
    "app:pipeline-architecture",
    "app:deferred-training",
    "app:windowed-curriculum",
    "app:rubric-bank-prompts",
    "app:training_details",
    "app:longform-eval",
    "app:shortform-eval",
    "app:theory:conditioning",
    "app:theory:credit",
    "app:theory:evolution",
)
OTHERS = (
    "alg:rubricem",
    "thm:stage-info-main",
    "thm:stage-credit-main",
    "tab:model_performance",
    "tab:model_performance_2",
    "tab:windowed-curriculum",
    "fig:scaffold",
    "fig:detailed_RL",
    "fig:ablation_study",
    "fig:ablation_scaffolding_scaling",
)
LAST_LINE = 43
"""Of Algorithm 1."""


@pytest.mark.parametrize("label", [*EQUATIONS, *SECTIONS, *OTHERS])
def test_a_label_of_the_paper_is_listed(label):
    assert f"`{label}`" in PAGE


def test_every_line_of_the_algorithm_is_listed_once_and_in_order():
    table = PAGE.split("## Algorithm 1")[1].split("##")[0]
    listed = []
    for first, last in re.findall(r"^\| (\d+)(?:-(\d+))? \|", table, re.MULTILINE):
        listed += range(int(first), int(last or first) + 1)
    assert listed == list(range(1, LAST_LINE + 1))


@pytest.mark.parametrize(("name", "target"), LINKS)
def test_what_the_map_names_is_in_the_file(name, target):
    path = DOCS / target
    assert path.is_file()
    if path.suffix != ".py":
        assert name == path.name
        return
    last = name.split(".")[-1].split()[-1]
    text = path.read_text(encoding="utf-8")
    is_command = name.startswith("rubricem ") and f'name="{last}"' in text
    assert is_command or re.search(rf"^\s*(?:async def|def|class) {last}\b|^{last}\b[^\n]*=", text, re.MULTILINE)
    if "." in name:
        assert re.search(rf"^class {name.split('.')[0]}\b", text, re.MULTILINE)
