"""The map from the paper to the code names what is there, and leaves out nothing of the method."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "paper_map.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", PAGE)))
# Of the paper's source: every equation that has a label up to the theory of credit, every section of the method and
# of the appendices that describe it, the theorems that it states in the text, its tables and its algorithm.
# With the number that LaTeX gives each: appendices by letter, figures and tables in the order of the source. The table
# of the windowed curriculum stands in a figure.
NUMBERS = {
    "eqa:ss-grpo": "equation 1",
    "eqa:oracle_grad": "equation 2",
    "eqa:judge_grad": "equation 3",
    "eqa:broadcast_grad": "equation 4",
    "eqa:oracle_diff": "equation 5",
    "eqa:judge_alignment": "equation 6",
    "sec:method": "3",
    "sec:scaffold": "3.2",
    "sec:ssgrpo": "3.3",
    "sec:evolving-policy": "3.4",
    "sec:exp": "4",
    "appen:scaffold": "B",
    "app:scaffold_sub_section": "B.1",
    "app:sft-data": "B.2",
    "app:stagewise_judge": "C",
    "app:async-implementation": "D",
    "app:pipeline-architecture": "D.1",
    "app:deferred-training": "D.2",
    "app:windowed-curriculum": "D.3",
    "app:rubric-bank-prompts": "D.6",
    "app:theory:conditioning": "E.1",
    "app:theory:credit": "E.2",
    "app:theory:evolution": "E.3",
    "app:training_details": "F.1",
    "app:longform-eval": "F.2.1",
    "app:shortform-eval": "F.2.2",
    "alg:rubricem": "G",
    "appen:limitation": "H",
    "tab:model_performance": "tables 1 and 2",
    "tab:model_performance_2": "tables 1 and 2",
    "tab:windowed-curriculum": "figure 7",
    "fig:scaffold": "figure 3",
    "fig:detailed_RL": "figure 4",
    "fig:ablation_study": "figure 5",
    "fig:ablation_scaffolding_scaling": "figure 6",
}
THEOREMS = ("thm:stage-info-main", "thm:stage-credit-main")
LAST_LINE = 43
"""Of Algorithm 1."""


@pytest.mark.parametrize("label", [*NUMBERS, *THEOREMS])
def test_a_label_of_the_paper_is_listed(label):
    assert f"`{label}`" in PAGE


@pytest.mark.parametrize(("label", "number"), NUMBERS.items())
def test_a_label_stands_beside_its_number(label, number):
    line = next(line for line in PAGE.splitlines() if f"`{label}`" in line)
    assert re.search(rf"(?<![\w.]){re.escape(number)}(?!\.?\d)\b", line.split("](")[0]), line


PAPER = re.compile(
    r"\b(?:paper(?:'s)?,? |\()(section|appendix|figure|equation|Algorithm) ([A-H]?[\d.]*\d|[A-H]\b)", re.IGNORECASE
)
KNOWN = {
    "section": {"3", "3.1", "3.2", "3.3", "3.4", "4", "5"},
    "figure": {str(number) for number in range(1, 8)},
    "equation": {"1"},
    "algorithm": {"1"},
}
LAST = {"A": 0, "B": 2, "C": 4, "D": 6, "E": 3, "F": 4, "G": 0, "H": 0}
"""The last subsection of each appendix."""


def test_a_number_of_the_paper_in_the_code_is_one_that_the_paper_has():
    roots = ("rubricem_env", "rubricem_agent", "trainers", "examples", "configs", "docs")
    files = [
        path for root in roots for path in (DOCS.parent / root).rglob("*") if path.suffix in (".py", ".md", ".yaml")
    ]
    wrong = []
    for path in files:
        for kind, number in PAPER.findall(path.read_text(encoding="utf-8")):
            letter, _, rest = number.partition(".")
            is_appendix = letter in LAST and int(rest.partition(".")[0] or 0) <= LAST[letter]
            if not is_appendix and number not in KNOWN.get(kind.lower(), set()):
                wrong.append((str(path.relative_to(DOCS.parent)), kind, number))
    assert wrong == []


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
