"""Compares the manifest of a resumed evaluation with the one in its folder."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rubricem_agent.evals.shown_value import shown
from rubricem_env.domain.errors import UsageError
from rubricem_records.atomic_files import write_atomic, writing
from rubricem_records.evaluation_manifest import (
    ANSWERS_FILE,
    MANIFEST_FILE,
    VERDICTS_FILE,
    EvaluationManifest,
    judge_model,
    read_manifest,
)
from rubricem_records.journal import NO_ROOM

_LATER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "search_sha256": "a search (the settings of --tools and the corpus that they name) of sha256",
        "policy_sha256": "a policy (the model in the folder of local:) of sha256",
        "bank_sha256": "a bank (the lessons in --bank) of sha256",
        "sampling": "the sampling",
    }
)
"""What earlier releases did not record of an agent, as messages name it."""


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
