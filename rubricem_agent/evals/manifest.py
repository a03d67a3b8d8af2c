"""What a run is: everything that its numbers depend on, written beside its logs and validated on resume.

It names the examples by a rule: all, a published sample (row numbers from the row count alone, so that they can be
checked without the data), explicit ids, or one fixed set for ablations; without what training and memory have seen.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.files import Advice, json_array, json_lines, read_utf8
from rubricem_agent.evals.records import NO_ROOM
from rubricem_agent.evals.rules import EvaluationMode, Rules, SubsetRule
from rubricem_agent.evals.shown_value import shown
from rubricem_agent.files import write_atomic, writing
from rubricem_agent.policy.base import Sampling
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_text, refuse_other_than_file, validating
from rubricem_env.domain.trajectory import query_key

MANIFEST_VERSION = 1
_LATER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "search_sha256": "a search (the settings of --tools and the corpus that they name) of sha256",
        "policy_sha256": "a policy (the model in the folder of local:) of sha256",
        "bank_sha256": "a bank (the lessons in --bank) of sha256",
        "sampling": "the sampling",
    }
)
"""What earlier releases did not record of an agent, as messages name it."""
MANIFEST_FILE, ANSWERS_FILE, VERDICTS_FILE, SCORES_FILE = "run.json", "answers.jsonl", "verdicts.jsonl", "scores.json"


class Inputs(Frozen):
    """The files that were read. Paths may change; hashes may not."""

    path: Text
    sha256: Text
    rows: int
    criteria: Text = ""
    references: Text = ""
    beside_sha256: Text = ""
    """Of criteria and reference articles together: their weights move numbers and stand in no prompt."""
    any_version: bool = False
    with_fact: bool = False
    ids: tuple[Text, ...]
    """The examples that are run, in the order of the subset."""
    subset: Text
    """The rule by which they were chosen, in words."""
    left_out: tuple[Text, ...] = ()
    """Examples that were dropped because they are in training data or in the bank."""


class Agent(Frozen):
    """Who answered, and how."""

    policy: Text
    policy_sha256: Text = ""
    """Of a local model's files; empty for a model on a server, and in runs of earlier releases."""
    style: Text = "scaffold"
    search: Text = ""
    """The backend: web benchmarks drift with it and with the date."""
    search_sha256: Text = ""
    """Of the settings and the corpus of the search; empty for the shipped one, and in runs of earlier releases."""
    reuse: Text = "none"
    bank: Text = ""
    bank_sha256: Text = ""
    """Of the lessons that may be retrieved; empty without a bank, and in runs of earlier releases."""
    attempts: Annotated[int, Field(ge=1)] = 1
    sampling: Sampling | None = None
    """How the policy drew its text; none where no model wrote, and in runs of earlier releases."""


class EvaluationManifest(Frozen):
    """One run."""

    version: int = MANIFEST_VERSION
    benchmark: Text
    mode: EvaluationMode
    rules: Rules
    judges: tuple[Text, ...]
    """BACKEND:MODEL[@URL], without the URL of the default service; earlier releases wrote the model alone. Empty where
    nothing is judged by a model."""
    prompt_hash: Text
    prompts: Text = ""
    """The folder or package of the official judge prompts; empty where the judge is asked with our own."""
    inputs: Inputs
    agent: Agent
    epochs: Annotated[int, Field(ge=1)] = 1
    seed: int = 0
    created: Text = ""
    code: Text = ""
    """Version of this package."""

    @property
    def is_substituted(self) -> bool:
        """Whether another judge than the mode's own is used: such numbers are not official."""
        return bool(self.rules.judge) and any(judge_model(judge) != self.rules.judge for judge in self.judges)

    @property
    def has_own_prompts(self) -> bool:
        """Whether a judge is asked in our words and not in those of the benchmark: such numbers are not official."""
        return bool(self.prompt_hash) and not self.prompts

    @property
    def label(self) -> str:
        """The mode as it is printed beside every number: with a star where the judge is a substitute, and whose prompts."""
        return f"{self.mode}{'*' if self.is_substituted else ''}{', own prompts' if self.has_own_prompts else ''}"


def judge_model(judge: str) -> str:
    """The model in a judge's name, such as `gpt-4.1` in `openai:gpt-4.1@https://host`; a model alone unchanged."""
    return judge.partition(":")[2].partition("@")[0] if _is_full(judge) else judge


def _is_full(judge: str) -> bool:
    """Whether the name tells the backend; a model alone may have a colon as well."""
    return judge.startswith(("gemini:", "openai:", "vllm:", "local:"))


def judge_names_in(judges: Iterable[str]) -> dict[str, str]:
    """How each judge is named among the others: by its model, or in full where two share the model.

    A judge of an earlier release is known by its model alone, and is taken for the one that has it.
    """
    full: dict[str, set[str]] = {}
    known = set(judges)
    for judge in filter(_is_full, known):
        full.setdefault(judge_model(judge), set()).add(judge)
    return {judge: judge if len(full.get(judge_model(judge), ())) > 1 else judge_model(judge) for judge in known}


def read_manifest(folder: Path) -> EvaluationManifest:
    """The manifest of a run. Raises FileFormatError where the folder is no run, or one of a newer release."""
    path = folder / MANIFEST_FILE
    refuse_other_than_file(path, "manifest of a run")
    if not path.exists():
        raise FileFormatError(f"{folder} is no run: {path} cannot be read. Give the --out folder of a run.")
    with validating(f"{path} is no manifest of a run"):
        # Not strict: JSON has lists for tuples and strings for enums.
        manifest = EvaluationManifest.model_validate_json(read_text(path, "the manifest of a run"), strict=False)
    if manifest.version > MANIFEST_VERSION:
        raise FileFormatError(f"{path} has the version {manifest.version}; this release reads {MANIFEST_VERSION}.")
    return manifest


def settle_manifest(folder: Path, wanted: EvaluationManifest) -> EvaluationManifest:
    """Write the manifest of a new run, or compare that of a resumed run.

    Raises UsageError where the folder holds a run of another kind; the message names the difference and the way out.
    """
    path = folder / MANIFEST_FILE
    if path.exists() and has_lines(folder):
        known = read_manifest(folder)
        refuse_difference(folder, known, wanted=wanted)
        return known
    with writing(path, NO_ROOM):
        write_atomic(path, wanted.model_dump_json(indent=1))
    return wanted


def has_lines(folder: Path) -> bool:
    """Whether anything was answered or judged in the folder; otherwise its manifest may be replaced."""
    logs = (folder / ANSWERS_FILE, folder / VERDICTS_FILE)
    return any(log.exists() and log.stat().st_size > 0 for log in logs)


def refuse_difference(folder: Path, known: EvaluationManifest, *, wanted: EvaluationManifest) -> None:
    """Raise UsageError for the first difference between the two runs on which a number depends."""
    # Runs of earlier releases cannot be compared in what they did not record, and may resume.
    models = tuple(map(judge_model, wanted.judges))
    known_agent, wanted_agent = dict(known.agent), dict(wanted.agent)
    compared = [name for name in known_agent if known_agent[name] or name not in _LATER_NAMES]
    judging: list[tuple[str, object, object]] = []
    if (known.benchmark, known.inputs.sha256) == (wanted.benchmark, wanted.inputs.sha256):
        judging = [
            ("the mode", known.mode, wanted.mode),
            ("the rules", known.rules, wanted.rules),
            ("the judge", known.judges, models if models == known.judges else wanted.judges),
            ("the judge prompts", known.prompt_hash, wanted.prompt_hash),
            ("criteria and references of sha256", known.inputs.beside_sha256, wanted.inputs.beside_sha256),
            ("FACT", known.inputs.with_fact, wanted.inputs.with_fact),
        ]
    answers: list[tuple[str, object, object]] = [
        ("the benchmark", known.benchmark, wanted.benchmark),
        ("the data of sha256", known.inputs.sha256, wanted.inputs.sha256),
        ("the subset", known.inputs.ids, wanted.inputs.ids),
        *((_LATER_NAMES.get(name, f"the agent's {name}"), known_agent[name], wanted_agent[name]) for name in compared),
        ("the number of epochs", known.epochs, wanted.epochs),
        ("the seed", known.seed, wanted.seed),
    ]
    for settings, another_out in (
        (judging, f"another --out with --answers-from {folder} to judge anew"),
        (answers, "another --out"),
    ):
        for what, recorded, given in settings:
            if recorded != given:
                raise UsageError(
                    f"{folder} holds a run with {what} {shown(recorded)}; refusing to resume with {shown(given)}, because "
                    f"its numbers would mix both. Give what that run was made with, or {another_out}."
                )


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


_NAMES = ("question", "query", "prompt", "problem")
SEEN_FILE = Advice(
    "--seen the file of JSON lines that training read, or the folder of a bank",
    "Give the file that training read, one JSON object a line.",
)


def seen_keys(path: Path) -> frozenset[str]:
    """Keys of every question in a file of JSON lines: training samples, trajectories, exported bank items.

    Raises FileFormatError where the file cannot be read, or no line of it names a question.
    """
    keys = frozenset(key for line in json_lines(path, SEEN_FILE) for key in _keys_in(line.content))
    if not keys:
        raise FileFormatError(
            f"{path} names no question in any line; a line needs one of query_key, {', '.join(_NAMES)}. "
            "Give the file that training read."
        )
    return keys


def _keys_in(content: JsonValue) -> Iterator[str]:
    """The row's own key and question, and those one level further down."""
    if not isinstance(content, dict):
        return
    key = content.get("query_key")
    if isinstance(key, str):
        yield key
    yield from (query_key(text) for name in _NAMES if isinstance(text := content.get(name), str))
    for value in content.values():
        if isinstance(value, dict):
            yield from _keys_in(value)


SubsetName = Literal["mode", "ablation"]
"""How the examples are chosen.

mode: by the published rule of the mode, where a limit is given; else all. ablation: the same 100 in every run.
"""


def choose(
    loaded: Loaded, name: SubsetName = "mode", *, limit: int | None = None, ids_file: Path | None = None
) -> Inputs:
    """The examples of a run: all, the mode's published sample of `limit`, those of an id file, or the ablation subset.

    Raises UsageError where two rules are given, or more examples are requested than there are, and FileFormatError where
    the id file has an unknown id.
    """
    known = [example.id for example in loaded.examples]
    rows: Sequence[int] = range(len(known))
    rule = "all"
    if ids_file is not None:
        if limit is not None or name == "ablation":
            raise UsageError("--ids names the examples; give it without --limit and --subset.")
        rows, rule = rows_of_ids(ids_file, known), f"the ids of {ids_file.name}"
    elif name == "ablation":
        rows, rule = ablation_rows(len(known)), f"ablation subset, seed {ABLATION_SEED}"
        if limit is not None and limit < len(rows):
            rows, rule = rows[:limit], f"{rule}, first {limit}"
    elif limit is not None:
        sampling = loaded.rules.sampling
        rows, rule = published_rows(sampling, len(known), limit), RULES[sampling].format(limit)
    ids = tuple(known[row] for row in rows)
    return Inputs(path=str(loaded.path), sha256=loaded.sha256, rows=len(known), ids=ids, subset=rule)


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


def find_seen(examples: Sequence[Example], keys: Collection[str]) -> tuple[str, ...]:
    """Ids of the examples whose question has one of the keys."""
    return tuple(example.id for example in examples if query_key(example.prompt_text) in keys)


def without_seen(inputs: Inputs, seen: Collection[str], *, drops: bool, where: str) -> Inputs:
    """The inputs without the examples that training has seen.

    Raises UsageError where there are such examples and dropping them was not requested, or nothing is left.
    """
    found = tuple(example_id for example_id in inputs.ids if example_id in seen)
    if not found:
        return inputs
    if not drops:
        raise UsageError(
            f"{len(found)} of {len(inputs.ids)} examples are in {where}, the first being {found[0]!r}: their numbers "
            "would not be held out. Use --drop-seen to leave them out; the report will say so."
        )
    kept = tuple(example_id for example_id in inputs.ids if example_id not in found)
    if not kept:
        raise UsageError(f"all {len(found)} examples are in {where}; nothing is left to evaluate.")
    return inputs.model_copy(update={"ids": kept, "left_out": (*inputs.left_out, *found)})
