"""The benchmarks by name. Adding one is a file in `benchmarks` that defines `BENCHMARK`, and a line here."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from rubricem_agent.evals.benchmark import Benchmark, Loaded
from rubricem_agent.evals.benchmarks import (
    almanac,
    browsecomp_plus,
    deepsearchqa,
    draco,
    drb,
    drb2,
    healthbench,
    own,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.official_prompts import SOURCES, read_official
from rubricem_agent.evals.rules import LEAST_TRIES
from rubricem_env.domain.errors import ConfigError
from rubricem_records.evaluations.rules import EvaluationMode, Rules

_PAPER = (healthbench, researchqa, drb, researchrubrics, simpleqa, twowiki, webwalkerqa, deepsearchqa)
PAPER = tuple(module.BENCHMARK.name for module in _PAPER)
_MODULES = (*_PAPER, browsecomp_plus, drb2, draco, almanac, own)
SUITE: Mapping[str, Benchmark] = MappingProxyType({module.BENCHMARK.name: module.BENCHMARK for module in _MODULES})
"""The benchmarks in the order of the paper's tables, then the later ones."""


def find_benchmark(name: str) -> Benchmark:
    """A benchmark by name. Raises ConfigError where the name is unknown."""
    if name not in SUITE:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(SUITE)}.")
    return SUITE[name]


def rules_for(benchmark: str, mode: EvaluationMode) -> Rules:
    """The rules of a mode.

    Raises ConfigError where the benchmark is unknown, or has no such mode.
    """
    known = find_benchmark(benchmark)
    if mode == "lenient":
        return known.official.model_copy(update={"mode": mode})
    own = {"drtulu": known.drtulu, "paper": known.paper, "leaderboard": known.leaderboard}.get(mode, known.official)
    if own is None:
        why = {
            "drtulu": f"DR Tulu did not run {benchmark}",
            "paper": f"the paper did not run {benchmark}",
            "leaderboard": f"no other judge than the official one is known of the leaderboard of {benchmark}",
        }[mode]
        raise ConfigError(f"{why}, so that it has no mode {mode}. Use --mode official, strict or lenient.")
    return own.model_copy(update={"mode": mode, "tries": max(own.tries, LEAST_TRIES)})


def has_official_prompts(benchmark: str, mode: EvaluationMode) -> bool:
    """Whether this release can check the official text of every judge prompt of a mode."""
    grader = find_benchmark(benchmark).grader(rules_for(benchmark, mode))
    return set(grader.prompts) <= {source.partition(".")[0] for source in SOURCES}


def load_benchmark(
    name: str, paths: DataPaths, *, rules: Rules, any_version: bool = False, with_fact: bool = False, prompts: str = ""
) -> Loaded:
    """Read and check the files; `any_version` accepts other hashes and row counts.

    `prompts` is the folder or the package of the official judge prompts; without it the judge is asked with our own.

    Raises ConfigError where the benchmark is unknown, FileFormatError where a file is missing, of another version or
    malformed, and UsageError where the benchmark needs a file that was not named, or an official prompt is missing.
    """
    benchmark = find_benchmark(name)
    data = benchmark.load(paths, any_version=any_version)
    make_grader = benchmark.fact_grader if with_fact and benchmark.fact_grader is not None else benchmark.grader
    grader = make_grader(rules)
    if prompts:
        grader = replace(grader, official=read_official(prompts, grader.prompts))
    return Loaded(**vars(data), benchmark=benchmark, grader=grader)
