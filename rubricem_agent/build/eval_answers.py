"""Judging another run's answers: what made them is taken from there, and nothing is answered anew."""

from pathlib import Path

from rubricem_agent.build.eval_scores import is_news
from rubricem_agent.config.evals import EvalConfig
from rubricem_agent.evals.example import SourceFile
from rubricem_agent.evals.run.journal import Journal
from rubricem_agent.evals.run.manifest import ANSWERS_FILE, Manifest
from rubricem_agent.evals.run.records import AnswerRecord
from rubricem_agent.evals.run.runner import Stage, case_keys
from rubricem_agent.evals.subset import Subset, SubsetName
from rubricem_env.domain.errors import ConfigError, UsageError


def judging_only(config: EvalConfig, source: Manifest) -> EvalConfig:
    """The settings of a run that judges the answers of `source`, with that run's policy and epochs.

    Raises:
        ConfigError: they name another benchmark, or say of the answers what is not so.
    """
    if source.benchmark != config.benchmark:
        raise ConfigError(
            f"{config.answers_from} is a run of {source.benchmark}; its answers cannot be judged as those of "
            f"{config.benchmark}. Name a run of {config.benchmark} with --answers-from."
        )
    for option, default, given, theirs in _said_of_answers(config, source):
        if given not in (default, theirs):
            raise ConfigError(
                f"--{option} is {given}; the answers of {config.answers_from} were made with {theirs}, and are judged "
                f"as they are. Leave --{option} out."
            )
    return config.model_copy(update={"policy": source.agent.policy, "epochs": source.epochs, "stage": Stage.VERDICTS})


def refuse_other_data(folder: Path, source: Manifest, *, data: SourceFile) -> None:
    """Raise UsageError where the answers are to the examples of another file."""
    if data.sha256 != source.inputs.sha256:
        raise UsageError(
            f"{data.path} has the sha256 {data.sha256[:12]}; the answers of {folder} are to the examples of "
            f"{source.inputs.sha256[:12]}, which lay at {source.inputs.path}. Give that file with --data."
        )


def subset_of(config: EvalConfig, source: Manifest, *, chosen: Subset) -> Subset:
    """The examples that were answered, or those of them that the caller has chosen.

    Raises:
        UsageError: some were chosen that the run is not about.
    """
    if config.limit is None and config.ids is None and config.subset is SubsetName.MODE:
        return Subset(source.inputs.ids, source.inputs.subset, source.inputs.left_out)
    missing = [example_id for example_id in chosen.ids if example_id not in set(source.inputs.ids)]
    if missing:
        raise UsageError(
            f"{len(missing)} of the {len(chosen.ids)} examples of '{chosen.rule}' are not in {config.answers_from}, the "
            f"first being {missing[0]!r}; it is about '{source.inputs.subset}'. Leave --limit, --subset and --ids out to "
            "judge all that it has answered."
        )
    return chosen


def copy_answers(source: Path, wanted: Manifest, *, target: Path) -> None:
    """Take over the answers to a run's examples, those that are not there yet; they are the same whatever the mode."""
    keys = set(case_keys(wanted.inputs.ids, wanted.epochs))
    answers = Journal.open(target, AnswerRecord)
    try:
        for record in Journal.read(source / ANSWERS_FILE, AnswerRecord).records:
            if record.is_final and record.key in keys and is_news(answers.find(record.key)):
                answers.append(record.model_copy(update={"mode": wanted.mode.value}))
    finally:
        answers.close()


def _said_of_answers(config: EvalConfig, source: Manifest) -> list[tuple[str, object, object, object]]:
    """Options with their default, what is given here, and what the run was made with. The tools may differ for FACT."""
    agent, default = source.agent, EvalConfig(benchmark=config.benchmark)
    said: list[tuple[str, object, object, object]] = [
        ("policy", default.policy, config.policy, agent.policy),
        ("style", default.style.value, config.style.value, agent.style),
        ("reuse", default.reuse.value, config.reuse.value, agent.reuse),
        ("bank", "", str(config.bank or ""), agent.bank),
        ("attempts", default.attempts, config.attempts, agent.attempts),
        ("epochs", default.epochs, config.epochs, source.epochs),
    ]
    if not config.fact:
        said.append(("tools", "", str(config.tools or ""), agent.search))
    return said
