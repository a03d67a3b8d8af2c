"""The examples that a run is about: chosen by a named rule, and free of what training has seen."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.evals.example import Example
from rubricem_agent.evals.loading import Loaded
from rubricem_agent.evals.modes import Sampling
from rubricem_agent.evals.subsets import ABLATION_SEED, ablation_rows, drtulu_rows, official_rows, rows_of_ids
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.query import query_key


class SubsetName(StrEnum):
    """How the examples are chosen."""

    MODE = "mode"
    """By the published rule of the mode, where a limit is given; else all."""
    ABLATION = "ablation"
    """The same 100 in every run."""


class Subset(NamedTuple):
    """Ids in the order in which they are run, and the rule in words."""

    ids: tuple[str, ...]
    rule: str
    left_out: tuple[str, ...] = ()


class Choice(NamedTuple):
    """What the caller asks for."""

    name: SubsetName = SubsetName.MODE
    limit: int | None = None
    ids_file: Path | None = None


def choose(loaded: Loaded, choice: Choice) -> Subset:
    """The examples by the caller's choice.

    Raises:
        UsageError: two rules are given, or more examples are asked for than there are.
        BenchmarkFileError: the id file names an unknown id.
    """
    if choice.ids_file is not None and (choice.limit is not None or choice.name is SubsetName.ABLATION):
        raise UsageError("--ids names the examples; give it without --limit and --subset.")
    known = [example.id for example in loaded.examples]
    if choice.ids_file is not None:
        return _subset(known, rows_of_ids(choice.ids_file, known), rule=f"the ids of {choice.ids_file.name}")
    if choice.name is SubsetName.ABLATION:
        rows = ablation_rows(len(known))
        return _limited(_subset(known, rows, rule=f"ablation subset, seed {ABLATION_SEED}"), choice.limit)
    if choice.limit is None:
        return Subset(tuple(known), "all")
    return _by_mode(known, loaded.rules.sampling, limit=choice.limit)


def find_seen(examples: Sequence[Example], keys: Collection[str]) -> tuple[str, ...]:
    """Ids of the examples whose question is known by one of the keys."""
    return tuple(example.id for example in examples if query_key(example.prompt_text) in keys)


def without_seen(subset: Subset, seen: Collection[str], *, drops: bool, where: str) -> Subset:
    """The subset without the examples that training has seen.

    Raises:
        UsageError: there are some, and dropping them was not asked for.
    """
    found = tuple(example_id for example_id in subset.ids if example_id in seen)
    if not found:
        return subset
    if not drops:
        raise UsageError(
            f"{len(found)} of {len(subset.ids)} examples are in {where}, the first being {found[0]!r}: their numbers "
            "would not be held out. Use --drop-seen to leave them out; the report will say so."
        )
    kept = tuple(example_id for example_id in subset.ids if example_id not in found)
    if not kept:
        raise UsageError(f"all {len(found)} examples are in {where}; nothing is left to evaluate.")
    return subset._replace(ids=kept, left_out=(*subset.left_out, *found))


def _by_mode(known: Sequence[str], sampling: Sampling, *, limit: int) -> Subset:
    if sampling is Sampling.SIMPLE_EVALS:
        return _subset(known, official_rows(len(known), limit), rule=f"simple-evals sample of {limit}, seed 0")
    if sampling is Sampling.DRTULU:
        return _subset(known, drtulu_rows(len(known), limit), rule=f"shuffled with seed 42, first {limit}")
    if not 1 <= limit <= len(known):
        raise UsageError(f"--limit is {limit} and the benchmark has {len(known)} examples; ask for 1 to {len(known)}.")
    return _subset(known, range(limit), rule=f"first {limit}")


def _subset(known: Sequence[str], rows: Sequence[int], *, rule: str) -> Subset:
    return Subset(tuple(known[row] for row in rows), rule)


def _limited(subset: Subset, limit: int | None) -> Subset:
    if limit is None or limit >= len(subset.ids):
        return subset
    return Subset(subset.ids[:limit], f"{subset.rule}, first {limit}")
