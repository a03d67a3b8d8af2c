"""The commands that pages print: their options exist, and no real question is answered from the almanac in silence."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from rubricem_agent.cli.main import app
from rubricem_agent.evals.suite import SUITE

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("configs/*.yaml")])
_CODE = re.compile(r"^(?:\$ |    |#   )?(rubricem (?:eval|watch|data teach|data dry-run)\b.*)$", re.MULTILINE)
_QUOTED = re.compile(r"`(rubricem (?:eval|watch|data teach|data dry-run) [^`]*)`")
_REAL = [name for name, benchmark in SUITE.items() if not benchmark.is_almanac]


def printed() -> Iterator[tuple[str, list[str]]]:
    """Every command of the kinds that answer questions: the page, and its words."""
    for page in PAGES:
        if "log" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        for line in (*_CODE.findall(text), *_QUOTED.findall(text)):
            words = shlex.split(re.split(r"\s{2,}|\s\\$", line)[0])
            yield page.name, words[1:]


COMMANDS = list(printed())


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words else ""


def test_pages_print_such_commands():
    assert {words[0] for _, words in COMMANDS} == {"eval", "watch", "data"}
    assert len(COMMANDS) > 20


@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_no_printed_command_answers_real_questions_from_the_almanac(page, words):
    match words:
        case ["eval", "run", name, *_] | ["eval", name, *_] if name in _REAL:
            assert option(words, "--tools") or option(words, "--policy").startswith("file:")
        case ["eval", "table1" | "table2", *options] if options not in ([], ["[OPTIONS]"]):
            assert option(words, "--tools")
        case ["watch", _, *_] if option(words, "--eval") in _REAL:
            assert option(words, "--tools")
        case ["data", "teach" | "dry-run", *_] if "--questions" in words:
            assert option(words, "--tools")


@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_every_option_of_a_printed_command_exists(page, words):
    command = typer.main.get_command(app)
    name = ""
    for word in words:
        find = getattr(command, "get_command", None)
        found = find and (find(None, word) or (find(None, "run") if name == "eval" else None))
        if not found:
            break
        command, name = found, word
    known = {flag for parameter in command.params for flag in parameter.opts}
    if name == "watch" and "--" in words:
        evaluation = typer.main.get_command(app).get_command(None, "eval")
        known |= {flag for parameter in evaluation.get_command(None, "run").params for flag in parameter.opts}
    used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    assert used <= known
