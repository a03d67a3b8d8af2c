"""The nine benchmarks by name: where their numbers stand in the paper, what is asked of the agent, how they are loaded.

What each mode pins for each benchmark, as a table (benchmarks.md has the sources).

A benchmark loaded for a run: its examples, their gold, and the grader of the mode.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple

from rubricem_agent.evals import files
from rubricem_agent.evals.base import (
    Benchmark,
    BenchmarkFileError,
    CitationMode,
    EvaluationMode,
    Example,
    Extraction,
    Gold,
    GoldT,
    Rules,
    Sampling,
    SourceFile,
)
from rubricem_agent.evals.benchmarks import (
    deepsearchqa,
    drb_race,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
from rubricem_agent.evals.benchmarks.almanac import AlmanacGold, AlmanacGrader
from rubricem_agent.evals.benchmarks.deepsearchqa import DeepSearchQAGrader
from rubricem_agent.evals.benchmarks.drb_fact import DrbGrader
from rubricem_agent.evals.benchmarks.healthbench import HealthBenchGrader
from rubricem_agent.evals.benchmarks.researchqa import DRTULU_BATCH, OFFICIAL_BATCH, ResearchQAGrader
from rubricem_agent.evals.benchmarks.researchrubrics import ResearchRubricsGrader
from rubricem_agent.evals.benchmarks.simpleqa import SimpleQAGrader
from rubricem_agent.evals.benchmarks.twowiki import ExactMatchGrader, YesNoGrader
from rubricem_agent.evals.benchmarks.webwalkerqa import WebWalkerGrader
from rubricem_agent.evals.files import UNCHECKED, Expectation, read_bytes
from rubricem_agent.evals.grading import Grader
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.almanac import load_questions, shipped_questions_path


class SuiteEntry(NamedTuple):
    """A benchmark of the suite."""

    name: str
    title: str
    """As the reference tables head its column."""
    answer_format: AnswerFormat
    is_long: bool
    """Which of the paper's two averages it belongs to."""
    hub: str = ""
    """The Hugging Face data set and file, or where else the official file is."""
    guidance: str = ""
    """The prompt suffix: what the agent is told of the answer's form, beyond the format."""
    ids: str = "row numbers from 0"
    """What names an example, in logs and in files of answers: a column of the data file, or this."""


SHORT_GUIDANCE = "Give the answer alone, as short as it can be, in \\boxed{}."

SUITE: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            SuiteEntry(
                "healthbench",
                "HealthBench",
                AnswerFormat.LONG,
                True,
                "hf:openai/healthbench/2025-05-07-06-14-12_oss_eval.jsonl",
                "Reply to the last message of the conversation as a careful medical assistant would.",
                ids="prompt_id of the data file",
            ),
            SuiteEntry(
                "researchqa",
                "ResearchQA",
                AnswerFormat.SHORT,
                True,
                "hf:realliyifei/ResearchQA/test.json@87cdd81df0c5ea96de293859233e8e64dac3d168",
                "Answer in about 250 words, with citations.",
                ids="id of the data file",
            ),
            SuiteEntry(
                "drb",
                "DRB",
                AnswerFormat.LONG,
                True,
                "github.com/Ayanami0730/deep_research_bench: query.jsonl, criteria.jsonl, reference.jsonl",
                "Write the report in the language of the task.",
                ids="id of the data file",
            ),
            SuiteEntry(
                "researchrubrics",
                "ResearchRubrics",
                AnswerFormat.LONG,
                True,
                "hf:ScaleAI/researchrubrics/processed_data.jsonl",
                ids="sample_id of the data file",
            ),
            SuiteEntry(
                "simpleqa",
                "SimpleQA",
                AnswerFormat.EXACT,
                False,
                "openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv",
                SHORT_GUIDANCE,
            ),
            SuiteEntry(
                "twowiki",
                "2Wiki",
                AnswerFormat.EXACT,
                False,
                "github.com/Alab-NII/2wikimultihop",
                SHORT_GUIDANCE,
                ids="_id of the official file; row numbers from 0 of the predecessor's",
            ),
            SuiteEntry(
                "webwalkerqa",
                "WebWalker",
                AnswerFormat.EXACT,
                False,
                "huggingface.co/datasets/callanwu/WebWalkerQA: split main, as JSON Lines",
                SHORT_GUIDANCE,
            ),
            SuiteEntry(
                "deepsearchqa",
                "DSQA",
                AnswerFormat.EXACT,
                False,
                "hf:google/deepsearchqa/DSQA-full.csv@b2623f8653065c2672de6d941fc5434cd652376c",
                "If the question has several answers, give all of them in one \\boxed{}, separated by commas.",
                ids="example_id of the data file; row numbers from 0 where it has none",
            ),
            SuiteEntry(
                "almanac",
                "Almanac",
                AnswerFormat.LONG,
                False,
                "shipped with rubricem",
                ids="id of the test questions",
            ),
        )
    }
)


class DataPaths(NamedTuple):
    """The files of a benchmark. Only DeepResearchBench needs more than one."""

    path: Path | None = None
    criteria: Path | None = None
    references: Path | None = None


def find_entry(name: str) -> SuiteEntry:
    """A benchmark by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in SUITE:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(SUITE)}.")
    return SUITE[name]


GPT = "gpt-4.1-2025-04-14"
GPT_MINI = "gpt-4.1-mini-2025-04-14"
GEMINI_PRO = "gemini-2.5-pro-preview-06-05"
GEMINI_FLASH = "gemini-2.5-flash"
LONG_REPLY = 32_768

OFFICIAL: Mapping[str, Rules] = MappingProxyType(
    {
        # Officially asked without limit; ten tries end a judge that never gives a verdict.
        "healthbench": Rules(
            mode=EvaluationMode.OFFICIAL,
            judge=GPT,
            temperature=0.5,
            tries=10,
            clips_mean=True,
            sampling=Sampling.SIMPLE_EVALS,
        ),
        "researchqa": Rules(
            mode=EvaluationMode.OFFICIAL, judge=GPT_MINI, batch_size=OFFICIAL_BATCH, citations=CitationMode.NUMBERED
        ),
        "drb": Rules(
            mode=EvaluationMode.OFFICIAL,
            judge=GEMINI_PRO,
            tries=10,
            max_output_tokens=LONG_REPLY,
            citations=CitationMode.NUMBERED,
        ),
        "researchrubrics": Rules(
            mode=EvaluationMode.OFFICIAL, judge=GEMINI_PRO, max_output_tokens=8192, citations=CitationMode.NUMBERED
        ),
        "simpleqa": Rules(
            mode=EvaluationMode.OFFICIAL, judge=GPT, temperature=0.5, tries=1, sampling=Sampling.SIMPLE_EVALS
        ),
        "twowiki": Rules(mode=EvaluationMode.OFFICIAL, judge=""),
        "webwalkerqa": Rules(mode=EvaluationMode.OFFICIAL, judge="gpt-4", tries=1),
        "deepsearchqa": Rules(mode=EvaluationMode.OFFICIAL, judge=GEMINI_FLASH, tries=1, max_output_tokens=8192),
        "almanac": Rules(mode=EvaluationMode.OFFICIAL, judge=""),
    }
)

_PREDECESSOR = {
    "mode": EvaluationMode.DRTULU,
    "temperature": 0.0,
    "extraction": Extraction.PREDECESSOR,
    "citations": CitationMode.KEPT,
    "sampling": Sampling.DRTULU,
    "clips_mean": False,
}

DRTULU: Mapping[str, Rules] = MappingProxyType(
    {
        "healthbench": OFFICIAL["healthbench"].model_copy(update={**_PREDECESSOR, "max_output_tokens": 1000}),
        "researchqa": OFFICIAL["researchqa"].model_copy(update={**_PREDECESSOR, "batch_size": DRTULU_BATCH}),
        # The official scorer unchanged, after cite tags became numbers.
        "drb": OFFICIAL["drb"].model_copy(update={**_PREDECESSOR, "citations": CitationMode.NUMBERED}),
        "simpleqa": OFFICIAL["simpleqa"].model_copy(update=_PREDECESSOR),
        "twowiki": Rules(mode=EvaluationMode.DRTULU, judge=GPT, tries=1).model_copy(update=_PREDECESSOR),
        "webwalkerqa": Rules(mode=EvaluationMode.DRTULU, judge=GPT, tries=1).model_copy(update=_PREDECESSOR),
    }
)
"""The predecessor has no ResearchRubrics and no DeepSearchQA."""


def rules_for(benchmark: str, mode: EvaluationMode) -> Rules:
    """The rules of a mode.

    Raises:
        ConfigError: the benchmark is not known, or has no such mode.
    """
    if benchmark not in OFFICIAL:
        raise ConfigError(f"there is no benchmark {benchmark!r}; there are {', '.join(OFFICIAL)}.")
    if mode is EvaluationMode.DRTULU and benchmark not in DRTULU:
        raise ConfigError(
            f"the predecessor did not run {benchmark}, so that it has no mode drtulu. Use --mode official or strict."
        )
    if mode is EvaluationMode.DRTULU:
        return DRTULU[benchmark]
    official = OFFICIAL[benchmark]
    return official if mode is EvaluationMode.OFFICIAL else official.model_copy(update={"mode": EvaluationMode.STRICT})


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
    benchmark = drb_race.load(path, criteria_path=criteria, expect=_expect(drb_race.OFFICIAL, any_version))
    references = drb_race.load_articles(references_path)
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
    grader: Grader = YesNoGrader.for_rules(rules) if rules.mode is EvaluationMode.DRTULU else ExactMatchGrader()
    if read_bytes(path).lstrip().startswith(b"["):
        official = twowiki.load(path)
        return Loaded("twowiki", rules, official.examples, official.gold, official.source, grader)
    lines = files.load(path, expect=_expect(files.TWOWIKI, any_version))
    return Loaded("twowiki", rules, lines.examples, lines.gold, lines.source, grader)


def _webwalker(path: Path, rules: Rules, *, any_version: bool) -> Loaded:
    """The official lines, or the predecessor's, told apart by the first line."""
    grader: Grader = (
        YesNoGrader.for_rules(rules) if rules.mode is EvaluationMode.DRTULU else WebWalkerGrader.for_rules(rules)
    )
    if b'"messages"' in read_bytes(path).split(b"\n", 1)[0]:
        lines = files.load(path, expect=_expect(files.WEBWALKER, any_version))
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
