"""Compares the manifest of a resumed evaluation with the one in its folder."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.evals.base import shown
from rubricem_env.domain.errors import UsageError
from rubricem_records.atomic_files import write_atomic, writing
from rubricem_records.evaluation_manifest import (
    ANSWERS_FILE,
    MANIFEST_FILE,
    VERDICTS_FILE,
    EvaluationManifest,
    read_manifest,
)
from rubricem_records.journal import NO_ROOM

_AGENT_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "search_sha256": "a search (the settings of --tools and the corpus that they name) of sha256",
        "policy_sha256": "a policy (the model in the folder of local:) of sha256",
        "bank_sha256": "a bank (the lessons in --bank) of sha256",
        "sampling": "the sampling",
    }
)
"""The names of an agent's fields in messages, where the field's own name does not explain itself."""


class Compared(NamedTuple):
    """One thing on which a number depends, as the folder and as the command have it."""

    what: str
    recorded: object
    given: object


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
    known_agent, wanted_agent = dict(known.agent), dict(wanted.agent)
    judging: list[Compared] = []
    if (known.benchmark, known.inputs.sha256) == (wanted.benchmark, wanted.inputs.sha256):
        judging = [
            Compared("the mode", known.mode, wanted.mode),
            Compared("the rules", known.rules, wanted.rules),
            Compared("the judge", known.judges, wanted.judges),
            Compared("the judge prompts", known.prompt_hash, wanted.prompt_hash),
            Compared("criteria and references of sha256", known.inputs.beside_sha256, wanted.inputs.beside_sha256),
            Compared("FACT", known.inputs.with_fact, wanted.inputs.with_fact),
        ]
    answers = [
        Compared("the benchmark", known.benchmark, wanted.benchmark),
        Compared("the data of sha256", known.inputs.sha256, wanted.inputs.sha256),
        Compared("the subset", known.inputs.ids, wanted.inputs.ids),
        *(
            Compared(_AGENT_FIELDS.get(name, f"the agent's {name}"), recorded, wanted_agent[name])
            for name, recorded in known_agent.items()
        ),
        Compared("the number of epochs", known.epochs, wanted.epochs),
        Compared("the seed", known.seed, wanted.seed),
    ]
    for settings, another_out in (
        (judging, f"another --out with --answers-from {folder} to judge anew"),
        (answers, "another --out"),
    ):
        for what, recorded, given in settings:
            if recorded != given:
                raise UsageError(
                    f"{folder} holds a run with {what} {shown(recorded)}; refusing to resume with {shown(given)}, "
                    f"because its numbers would mix both. Give what that run was made with, or {another_out}."
                )
