"""Compares the manifest of a resumed evaluation with the one in its folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.evals.shown_value import shown
from rubricem_env.domain.errors import UsageError
from rubricem_records.evaluations.manifest import (
    ANSWERS_FILE,
    MANIFEST_FILE,
    VERDICTS_FILE,
    EvaluationManifest,
    read_manifest,
)
from rubricem_records.files.atomic_files import write_atomic, writing
from rubricem_records.files.journal import NO_ROOM

_ONLY_WHERE_USED: Mapping[str, str] = MappingProxyType(
    {
        "tools": "--tools",
        "search": "a search of",
        "search_sha256": "a search (the settings of --tools and the corpus that they name) of sha256",
        "policy_sha256": "a policy (the model in the folder of local:) of sha256",
        "bank_sha256": "a bank (the lessons in --bank) of sha256",
        "sampling": "the sampling",
    }
)
"""Fields of an agent that are empty where a run does not use them, as messages name them.

They are compared where both runs have them: a run of the stage `verdicts` draws no answers.
"""


class _Compared(NamedTuple):
    """One setting of the run in the folder, and of the run that would resume it."""

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
    return any(log.exists() and log.stat().st_size for log in logs)


def refuse_difference(folder: Path, known: EvaluationManifest, *, wanted: EvaluationManifest) -> None:
    """Raise UsageError for the first difference between the two runs on which a number depends."""
    known_agent = dict(known.agent)
    wanted_agent = dict(wanted.agent)
    agent = [
        _Compared(_ONLY_WHERE_USED.get(name, f"the agent's {name}"), known_agent[name], wanted_agent[name])
        for name in known_agent
        if name not in _ONLY_WHERE_USED or (known_agent[name] and wanted_agent[name])
    ]
    judging: list[_Compared] = []
    if (known.benchmark, known.inputs.sha256) == (wanted.benchmark, wanted.inputs.sha256):
        judging = [
            _Compared("the mode", known.mode, wanted.mode),
            _Compared("the rules", known.rules, wanted.rules),
            _Compared("the judge", known.judges, wanted.judges),
            _Compared("the judge's effort", known.judge_effort, wanted.judge_effort),
            _Compared("the judge prompts", known.prompt_hash, wanted.prompt_hash),
            _Compared("criteria and references of sha256", known.inputs.beside_sha256, wanted.inputs.beside_sha256),
            _Compared("FACT", known.inputs.with_fact, wanted.inputs.with_fact),
        ]
    answers: list[_Compared] = [
        _Compared("the benchmark", known.benchmark, wanted.benchmark),
        _Compared("the data of sha256", known.inputs.sha256, wanted.inputs.sha256),
        _Compared("the subset", known.inputs.ids, wanted.inputs.ids),
        *agent,
        _Compared("the number of epochs", known.epochs, wanted.epochs),
        _Compared("the seed", known.seed, wanted.seed),
    ]
    _refuse_first(folder, judging, another_out=f"another --out with --answers-from {folder} to judge anew")
    _refuse_first(folder, answers, another_out="another --out")


def _refuse_first(folder: Path, settings: Sequence[_Compared], *, another_out: str) -> None:
    for what, recorded, given in settings:
        if recorded != given:
            raise UsageError(
                f"{folder} holds a run with {what} {shown(recorded)}; refusing to resume with {shown(given)}, because "
                f"its numbers would mix both. Give what that run was made with, or {another_out}."
            )
