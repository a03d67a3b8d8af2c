"""What a run is: everything that its numbers depend on, kept beside its logs, and held to on resume."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import Field, ValidationError

from rubricem_agent.evals.modes import Mode, Rules
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory_json import first_problem

MANIFEST_VERSION = 1
_SAID: Mapping[str, str] = MappingProxyType(
    {
        "search_sha256": "a search (the settings of --tools and the corpus that they name) of sha256",
        "bank_sha256": "a bank (the lessons in --bank) of sha256",
    }
)
"""The hashes of an agent, as a refusal names them."""
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


class Manifest(Frozen):
    """One run."""

    version: int = MANIFEST_VERSION
    benchmark: Text
    mode: Mode
    rules: Rules
    judges: tuple[Text, ...]
    """As given on the command line; empty where nothing is judged by a model."""
    prompt_hash: Text
    inputs: Inputs
    agent: Agent
    epochs: Annotated[int, Field(ge=1)] = 1
    seed: int = 0
    created: Text = ""
    code: Text = ""
    """Version of this package."""

    @property
    def is_substituted(self) -> bool:
        """Whether another judge than the mode's own speaks: such numbers are no official ones."""
        return bool(self.rules.judge) and any(judge_model(judge) != self.rules.judge for judge in self.judges)

    @property
    def label(self) -> str:
        """The mode as it stands beside every number: with a star where the judge is a substitute."""
        return f"{self.mode.value}{'*' if self.is_substituted else ''}"


def judge_model(judge: str) -> str:
    """The model in a judge's name, such as `gpt-4.1` in `openai:gpt-4.1@https://host`."""
    return judge.partition(":")[2].partition("@")[0] or judge


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run.

    Raises:
        FileFormatError: the folder is no run, or one of a newer release.
    """
    path = folder / MANIFEST_FILE
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        manifest = Manifest.model_validate_json(path.read_bytes(), strict=False)
    except OSError as cause:
        raise FileFormatError(f"{folder} is no run: {path} cannot be read. Give the --out folder of a run.") from cause
    except ValidationError as cause:
        raise FileFormatError(f"{path} is no manifest of a run: {first_problem(cause)}") from cause
    if manifest.version > MANIFEST_VERSION:
        raise FileFormatError(f"{path} has the version {manifest.version}; this release reads {MANIFEST_VERSION}.")
    return manifest


def settle_manifest(folder: Path, wanted: Manifest) -> Manifest:
    """Write the manifest of a new run, or hold a resumed one to its own.

    Raises:
        UsageError: the folder holds a run of another kind; the message names the difference and the way out.
    """
    path = folder / MANIFEST_FILE
    if path.exists() and has_lines(folder):
        known = read_manifest(folder)
        refuse_difference(folder, known, wanted=wanted)
        return known
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(wanted.model_dump_json(indent=1), encoding="utf-8")
    partial.replace(path)
    return wanted


def has_lines(folder: Path) -> bool:
    """Whether anything was answered or judged in the folder: a run that never began binds nobody."""
    logs = (folder / ANSWERS_FILE, folder / VERDICTS_FILE)
    return any(log.exists() and log.stat().st_size > 0 for log in logs)


def refuse_difference(folder: Path, known: Manifest, *, wanted: Manifest) -> None:
    """Raise UsageError for the first thing in which the two runs differ and that a number depends on."""
    for what, before, now in _identities_of_judging(known, wanted):
        if before != now:
            way_out = f"Give what that run was made with, or another --out with --answers-from {folder} to judge anew."
            raise UsageError(_mixed(folder, what, before=before, now=now, way_out=way_out))
    for what, before, now in _identities_of_answers(known, wanted):
        if before != now:
            raise UsageError(
                _mixed(
                    folder, what, before=before, now=now, way_out="Give what that run was made with, or another --out."
                )
            )


def _mixed(folder: Path, what: str, *, before: object, now: object, way_out: str) -> str:
    return (
        f"{folder} holds a run with {what} {_shown(before)}; refusing to go on with {_shown(now)}, because its numbers "
        f"would mix both. {way_out}"
    )


def _identities_of_judging(known: Manifest, wanted: Manifest) -> list[tuple[str, object, object]]:
    if (known.benchmark, known.inputs.sha256) != (wanted.benchmark, wanted.inputs.sha256):
        return []
    return [
        ("the mode", known.mode.value, wanted.mode.value),
        ("the rules", known.rules, wanted.rules),
        ("the judge", known.judges, wanted.judges),
        ("the judge prompts", known.prompt_hash, wanted.prompt_hash),
        ("criteria and references of sha256", known.inputs.beside_sha256, wanted.inputs.beside_sha256),
        ("FACT", known.inputs.with_fact, wanted.inputs.with_fact),
    ]


def _identities_of_answers(known: Manifest, wanted: Manifest) -> list[tuple[str, object, object]]:
    return [
        ("the benchmark", known.benchmark, wanted.benchmark),
        ("the data of sha256", known.inputs.sha256, wanted.inputs.sha256),
        ("the subset", known.inputs.ids, wanted.inputs.ids),
        *(
            (_SAID.get(name, f"the agent's {name}"), *_both(known.agent, wanted.agent, name))
            for name in Agent.model_fields
        ),
        ("the number of epochs", known.epochs, wanted.epochs),
        ("the seed", known.seed, wanted.seed),
    ]


def _both(known: Agent, wanted: Agent, name: str) -> tuple[object, object]:
    before, now = known.model_dump()[name], wanted.model_dump()[name]
    # Runs of earlier releases did not write hashes down: of those nothing can be known, and they may go on.
    is_unknown = name in _SAID and not before
    return (now, now) if is_unknown else (before, now)


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
