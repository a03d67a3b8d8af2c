"""A benchmark loaded for a run: its examples, their gold, and the grader of the mode."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple

from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_agent.evals.example import Benchmark, Example, Gold, GoldT, SourceFile
from rubricem_agent.evals.files import (
    deepsearchqa,
    drb,
    drtulu_short_form,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
from rubricem_agent.evals.files.source import UNCHECKED, Expectation, read_bytes
from rubricem_agent.evals.grading.almanac import AlmanacGold, AlmanacGrader
from rubricem_agent.evals.grading.base import Grader
from rubricem_agent.evals.grading.deepsearchqa import DeepSearchQAGrader
from rubricem_agent.evals.grading.drb import DrbGrader
from rubricem_agent.evals.grading.healthbench import HealthBenchGrader
from rubricem_agent.evals.grading.researchqa import ResearchQAGrader
from rubricem_agent.evals.grading.researchrubrics import ResearchRubricsGrader
from rubricem_agent.evals.grading.short_answers import ExactMatchGrader, YesNoGrader
from rubricem_agent.evals.grading.simpleqa import SimpleQAGrader
from rubricem_agent.evals.grading.webwalkerqa import WebWalkerGrader
from rubricem_agent.evals.modes import Mode, Rules
from rubricem_agent.evals.suite import DataPaths, find_entry
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.query import AnswerFormat
from rubricem_env.world.jsonl import load_questions, shipped_questions_path


@dataclass(frozen=True)
class Loaded:
    """What a run is about."""

    name: str
    rules: Rules
    examples: tuple[Example, ...]
    gold: Mapping[str, Gold]
    source: SourceFile
    grader: Grader
    formats: Mapping[str, AnswerFormat] = field(default_factory=dict)
    """By example id, where the examples of a benchmark differ in it."""

    @cached_property
    def _by_id(self) -> Mapping[str, Example]:
        return {example.id: example for example in self.examples}

    def example(self, example_id: str) -> Example:
        return self._by_id[example_id]

    def format_of(self, example_id: str) -> AnswerFormat:
        return self.formats.get(example_id, find_entry(self.name).answer_format)


class _Plain(NamedTuple, Generic[GoldT]):
    """A benchmark of one file."""

    load: Callable[..., Benchmark[GoldT]]
    official: Expectation
    grader: Callable[[Rules], Grader]

    def open(self, name: str, path: Path, *, rules: Rules, any_version: bool) -> Loaded:
        benchmark = self.load(path, expect=_expect(self.official, any_version))
        return Loaded(name, rules, benchmark.examples, benchmark.gold, benchmark.source, self.grader(rules))


_PLAIN: Mapping[str, Callable[..., Loaded]] = MappingProxyType(
    {
        "healthbench": _Plain(healthbench.load, healthbench.OFFICIAL, HealthBenchGrader.for_rules).open,
        "researchqa": _Plain(researchqa.load, researchqa.OFFICIAL, ResearchQAGrader.for_rules).open,
        "researchrubrics": _Plain(researchrubrics.load, researchrubrics.OFFICIAL, ResearchRubricsGrader.for_rules).open,
        "simpleqa": _Plain(simpleqa.load, simpleqa.OFFICIAL, SimpleQAGrader.for_rules).open,
        "deepsearchqa": _Plain(deepsearchqa.load, deepsearchqa.OFFICIAL, DeepSearchQAGrader.for_rules).open,
    }
)


def load_benchmark(
    name: str, paths: DataPaths, *, rules: Rules, any_version: bool = False, with_fact: bool = False
) -> Loaded:
    """Read and check the files; `any_version` lets other hashes and row counts through.

    Raises:
        BenchmarkFileError: a file is missing, of another version or malformed.
        UsageError: the benchmark needs a file that was not named.
    """
    if name == "almanac":
        return _almanac(paths, rules)
    path = _needed(paths.path, f"the benchmark {name}", option="--data FILE")
    if name == "drb":
        return _drb(path, paths, rules=rules, any_version=any_version, with_fact=with_fact)
    if name == "twowiki":
        return _twowiki(path, rules, any_version=any_version)
    if name == "webwalkerqa":
        return _webwalker(path, rules, any_version=any_version)
    return _PLAIN[name](name, path, rules=rules, any_version=any_version)


def _expect(official: Expectation, any_version: bool) -> Expectation:
    return UNCHECKED if any_version else official


def _drb(path: Path, paths: DataPaths, *, rules: Rules, any_version: bool, with_fact: bool) -> Loaded:
    criteria = _needed(paths.criteria, "DeepResearchBench", option="--criteria FILE")
    references_path = _needed(
        paths.references, "RACE, which compares with a reference article,", option="--references FILE"
    )
    benchmark = drb.load(path, criteria_path=criteria, expect=_expect(drb.OFFICIAL, any_version))
    references = drb.load_articles(references_path)
    missing = [example.id for example in benchmark.examples if example.id not in references]
    if missing:
        raise BenchmarkFileError(
            f"{references_path} has no article for task {', '.join(missing[:10])} of {path}; RACE compares every task "
            "with its reference. Give the reference file of the same release."
        )
    grader = DrbGrader.for_rules(rules, references=references, with_fact=with_fact)
    return Loaded("drb", rules, benchmark.examples, benchmark.gold, benchmark.source, grader)


def _twowiki(path: Path, rules: Rules, *, any_version: bool) -> Loaded:
    """The official array, or the predecessor's lines, told apart by the first character."""
    grader: Grader = YesNoGrader.for_rules(rules) if rules.mode is Mode.DRTULU else ExactMatchGrader()
    if read_bytes(path).lstrip().startswith(b"["):
        official = twowiki.load(path)
        return Loaded("twowiki", rules, official.examples, official.gold, official.source, grader)
    lines = drtulu_short_form.load(path, expect=_expect(drtulu_short_form.TWOWIKI, any_version))
    return Loaded("twowiki", rules, lines.examples, lines.gold, lines.source, grader)


def _webwalker(path: Path, rules: Rules, *, any_version: bool) -> Loaded:
    """The official lines, or the predecessor's, told apart by the first line."""
    grader: Grader = YesNoGrader.for_rules(rules) if rules.mode is Mode.DRTULU else WebWalkerGrader.for_rules(rules)
    if b'"messages"' in read_bytes(path).split(b"\n", 1)[0]:
        lines = drtulu_short_form.load(path, expect=_expect(drtulu_short_form.WEBWALKER, any_version))
        return Loaded("webwalkerqa", rules, lines.examples, lines.gold, lines.source, grader)
    official = webwalkerqa.load(path, expect=_expect(webwalkerqa.OFFICIAL, any_version))
    return Loaded("webwalkerqa", rules, official.examples, official.gold, official.source, grader)


def _almanac(paths: DataPaths, rules: Rules) -> Loaded:
    """The test questions of the shipped world, or of another one's file."""
    path = paths.path or shipped_questions_path()
    questions = [question for question in load_questions(path) if question.split == "test"]
    gold = {
        one.id: AlmanacGold(id=one.id, truth=one.truth, domain=one.domain, answer_format=one.answer_format.value)
        for one in questions
    }
    examples = tuple(Example(id=one.id, prompt_text=one.question) for one in questions)
    source = SourceFile(path, hashlib.sha256(read_bytes(path)).hexdigest(), len(examples))
    formats = {one.id: one.answer_format for one in questions}
    return Loaded("almanac", rules, examples, gold, source, AlmanacGrader(), formats)


def _needed(path: Path | None, what: str, *, option: str) -> Path:
    if path is None:
        raise UsageError(f"{what} needs a file that was not named. Give it with {option}.")
    return path
