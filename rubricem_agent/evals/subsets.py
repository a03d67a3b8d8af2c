"""Chooses the examples of an evaluation by a rule.

The rules: all, a published sample (row numbers from the row count alone, so that they can be checked without the
data), explicit ids, or one fixed set for ablations.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.files import Advice, json_array, read_utf8
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_records.evaluations.manifest import Inputs
from rubricem_records.evaluations.rules import SubsetRule

ABLATION_SEED: Final = 100
"""The paper fixes a random subset and does not print its seed; this one is ours, and is the same in every run."""

ABLATION_SIZE: Final = 100

RULES: Mapping[SubsetRule, str] = MappingProxyType(
    {
        "simple_evals": "simple-evals sample of {}, seed 0",
        "drtulu": "shuffled with seed 42, first {}",
        "first": "first {}",
    }
)
"""The published rules in words."""


def published_rows(sampling: SubsetRule, num_rows: int, size: int) -> list[int]:
    """A sample by a published rule, from the row count alone.

    simple-evals samples with seed 0, in the order drawn. DR Tulu shuffles all rows with seed 42 and takes the first
    `size`, or all where there are fewer.
    """
    if size < 1 or (size > num_rows and sampling != "drtulu"):
        raise UsageError(f"--limit is {size} and the benchmark has {num_rows} examples; ask for 1 to {num_rows}.")
    rows = list(range(num_rows))
    if sampling == "simple_evals":
        return random.Random(0).sample(rows, size)
    if sampling == "drtulu":
        random.Random(42).shuffle(rows)
    return rows[:size]


def ablation_rows(num_rows: int) -> list[int]:
    """100 rows in ascending order, the same in every run; all rows where there are fewer."""
    return sorted(random.Random(ABLATION_SEED).sample(range(num_rows), min(ABLATION_SIZE, num_rows)))


IDS_FILE = Advice("a file with one id per line", "Write one id per line.")


def rows_of_ids(path: Path, known: Sequence[str]) -> list[int]:
    """The rows whose ids a file lists, one per line or as a JSON list, in the file's order.

    Refuses an unknown and a repeated id.
    """
    row_of = {example_id: row for row, example_id in enumerate(known)}
    rows: list[int] = []
    text = read_utf8(path, IDS_FILE)
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    listed = [(f"{path} line {number}", line) for number, line in lines if line]
    if text.lstrip().startswith("["):
        listed = [(element.where, str(element.content)) for element in json_array(path)]
    for where, example_id in listed:
        if example_id not in row_of:
            raise FileFormatError(
                f"{where}: the id {example_id!r} is not in the benchmark, which has {len(known)} examples. "
                "Correct the id, or load the file that it belongs to."
            )
        if row_of[example_id] in rows:
            raise FileFormatError(
                f"{where}: the id {example_id!r} is listed twice; an example is run once per epoch. "
                "Remove the line, or ask for more epochs."
            )
        rows.append(row_of[example_id])
    return rows


SubsetName = Literal["mode", "ablation"]
"""How the examples are chosen.

mode: the mode's own subset, or as many as a limit says by its published rule; else all. ablation: the same 100 in
every run.
"""


def choose(
    loaded: Loaded, name: SubsetName = "mode", *, limit: int | None = None, ids_file: Path | None = None
) -> Inputs:
    """The examples of a run: all, the mode's published sample of `limit`, those of an id file, or the ablation subset.

    Raises UsageError where two rules are given, or more examples are requested than there are, and FileFormatError
    where the id file has an unknown id.
    """
    known = [example.id for example in loaded.examples if example.id not in loaded.rules.leaves_out]
    rows: Sequence[int] = range(len(known))
    rule = "all"
    if ids_file is not None:
        if limit is not None or name == "ablation":
            raise UsageError("--ids names the examples; give it without --limit and --subset.")
        rows = rows_of_ids(ids_file, known)
        rule = f"the ids of {ids_file.name}"
    elif name == "ablation":
        rows = ablation_rows(len(known))
        rule = f"ablation subset, seed {ABLATION_SEED}"
        if limit is not None and limit < len(rows):
            rows = rows[:limit]
            rule = f"{rule}, first {limit}"
    elif (size := limit or loaded.rules.size) is not None and (limit or size < len(known)):
        sampling = loaded.rules.sampling
        rows = published_rows(sampling, len(known), size)
        rule = RULES[sampling].format(size)
    left_out = [example.id for example in loaded.examples if example.id in loaded.rules.leaves_out]
    if left_out:
        rule = f"{rule} without {', '.join(left_out)}"
    ids = tuple(known[row] for row in rows)
    return Inputs(path=str(loaded.path), sha256=loaded.sha256, rows=len(loaded.examples), ids=ids, subset=rule)


def refuse_incomplete(loaded: Loaded, ids: Sequence[str]) -> None:
    """Raise FileFormatError where an example that is run lacks what scoring it needs."""
    lacking = {example_id: what for example_id in ids if (what := loaded.gold[example_id].lacks())}
    if lacking:
        what = next(iter(lacking.values()))
        listed = [example_id for example_id, each in lacking.items() if each == what]
        shown = ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
        raise FileFormatError(
            f"example {shown} of {loaded.path} has no {what}, and every example that is run is scored by them. "
            "Give the file of the same release, or choose examples that have it with --limit or --ids."
        )
