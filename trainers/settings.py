"""What the commands of the trainers share: settings from a YAML file and KEY=VALUE arguments, and the exit code.

An unknown key at any depth is refused. `with_run_seed` gives the run's seed to every section that has none.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.sections import read_mapping
from rubricem_agent.learn.code_version import CODE_FILE, code_version
from rubricem_agent.learn.credit import CreditSettings
from rubricem_agent.learn.curriculum import Encounter, OnMiss, ReflectPhase
from rubricem_agent.memory.inject import ReferenceSettings
from rubricem_agent.prompting import Style, read_agent_prompts
from rubricem_agent.reflection.candidates import ReflectionSettings, check_trainable
from rubricem_agent.yaml_config import read_fields
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError, RubricEMError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.env.context import ContextLimits
from rubricem_env.judge.model.templates import read_judge_prompts
from rubricem_env.llm import export_traces
from rubricem_records.runs.run_settings import SETTINGS_FILE

Settings = TypeVar("Settings", bound=Frozen)
INTERRUPTED = 130
"""The exit code after an interrupt, as shells have it."""


class RecipeSettings(CreditSettings):
    """Credit, meta-policy and style: together they name a recipe of the paper.

    The keys are the same in every trainer.
    """

    scaffold: str = "deep_research"
    """The stages of the task: `deep_research`, `writing`, or the folder of a stage set (docs/howto/stages.md)."""
    style: Style = "scaffold"
    """What the policy is told: the four stages, or `react`, plain think and act, as in the paper's figure 6."""
    prompts: Path | None = None
    """A folder of your own prompts for the policy, on a disk that all nodes see: one of each of ours
    (rubricem_agent/prompts: react, format_*, inject_*, reflection; and agent), with the same sections and placeholders.
    None: ours. `judge.prompts` is the judge's.
    """
    meta_policy: bool = True
    """Reflect, keep the best reflection in the bank, and train on all of them one step late."""
    reflect_phase: ReflectPhase = "new"
    """`new` reflects at the first encounter of a window, `all` at repeats too."""
    on_miss: OnMiss = "none"
    """What a repeat is shown when its own lesson failed or is late: nothing (`none`), or similar questions' (`cross`).
    """
    references: ReferenceSettings = ReferenceSettings()
    window: Annotated[int, Field(ge=1)] = 3
    """Steps between a question and its repeat."""
    repeats: bool = True
    """Meet the questions of a window a second time, in every recipe, so that recipes differ in nothing else. false
    meets each once an epoch: the paper's windows belong to its rubric bank, which two of its recipes are without.
    """

    reflection: ReflectionSettings = ReflectionSettings()
    context: ContextLimits = ContextLimits()
    """How much of an episode the policy reads, for long ones; by default all of it. A folded episode has several
    windows, each trained on after the prompt that it was drawn after.
    """

    @property
    def stage_set(self) -> StageSet:
        """The stage set that `scaffold` names.

        Raises:
            ConfigError: there is none, or it breaks a rule.
        """
        return read_stage_set(self.scaffold)

    def is_guided(self, attempt: int, *, step: int) -> bool:
        """Whether an attempt at a question, from 0, sees lessons of the bank."""
        return self.meta_policy and self.references.is_guided(attempt, step)

    def guided_attempts(self, group_size: int, *, step: int) -> frozenset[int]:
        """The attempts of a group that see lessons of the bank."""
        return frozenset(attempt for attempt in range(group_size) if self.is_guided(attempt, step=step))

    def is_reflected_on(self, encounter: Encounter) -> bool:
        """Whether the attempts of an encounter are reflected on."""
        return self.meta_policy and (encounter == "new" or self.reflect_phase == "all")

    @model_validator(mode="before")
    @classmethod
    def _with_matrix_of_its_stages(cls, fields: object) -> object:
        """A run records the matrix that it is credited by."""
        if not isinstance(fields, dict) or fields.get("matrix") is not None:
            return fields
        scaffold = fields.get("scaffold", DEEP_RESEARCH.name)
        return {**fields, "matrix": read_stage_set(scaffold).matrix} if isinstance(scaffold, str) else fields

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        stages = self.stage_set.scaffold.stages
        if self.matrix is not None and len(self.matrix) != len(stages):
            raise ValueError(
                f"matrix has {len(self.matrix)} rows and the scaffold {self.scaffold} {len(stages)} stages; it has a "
                "row for each stage. Leave it out for the scaffold's own"
            )
        if self.meta_policy:
            check_trainable(self.reflection)
        if self.style == "react" and (self.credit != "answer_only" or self.meta_policy):
            raise ValueError(
                f"style react has no stages to credit or to reflect on, and credit is {self.credit}, meta_policy "
                f"{str(self.meta_policy).lower()}; set credit answer_only and meta_policy false"
            )
        return self


def run_command(name: str, command: Callable[[], object]) -> int:
    """Run a command; returns 0, or with one sentence on stderr 2 or 130.

    2: a mistake, a failed step or a full disk. 130: an interrupt.
    """
    try:
        export_traces(os.environ)
        command()
    except RubricEMError as mistake:
        sys.stderr.write(f"{name}: {mistake}\n")
        return 2
    except OSError as refusal:
        sys.stderr.write(
            f"{name}: cannot write {refusal.filename or 'the results'}: {refusal.strerror or refusal}. Make room; the "
            "same command resumes from the last checkpoint, if there is one.\n"
        )
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: stopped; the same command resumes from the last checkpoint, if there is one\n")
        return INTERRUPTED
    return 0


def read_command(arguments: Sequence[str] | None, kind: type[Settings], *, prog: str, description: str) -> Settings:
    """The settings that a command line names: `--config FILE`, and changes of it.

    Raises:
        ConfigError: as `read_settings`.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="settings that differ from the file's")
    chosen = parser.parse_args(arguments)
    return read_settings(chosen.config, kind, changes=chosen.changes)


def read_settings(path: Path, kind: type[Settings], *, changes: Iterable[str] = ()) -> Settings:
    """The settings of a YAML file, with `key=value` changes on top.

    Raises:
        ConfigError: the file or a change cannot be read, a key is unknown, or a value is out of range.
    """
    sections = {
        name: field.default for name, field in kind.model_fields.items() if isinstance(field.default, BaseModel)
    }
    defaults = {name: section.model_dump(exclude_unset=True) for name, section in sections.items()}
    fields = read_fields(path, changes, defaults=defaults)
    return read_mapping(fields, kind, where=f"the config {path}", separator=": ")


def prompt_hashes(settings: RecipeSettings, judge: JudgeConfig) -> dict[str, str]:
    """The hash of each prompt of a run, the policy's and the judge's, by the name of its file.

    Raises:
        ConfigError: a folder of prompts is refused.
    """
    stage_set = settings.stage_set
    agent = {name: file.hash for name, file in read_agent_prompts(settings.prompts, stage_set).items()}
    hashes = agent | read_judge_prompts(judge.prompts, stage_set).hashes
    return {f"{name}.md": hashes[name] for name in sorted(hashes)}


def make_out(folder: Path, *, settings: str | None = None, key: str = "out") -> None:
    """Make the folder that a config names as `key`, and write the settings of this start there, as JSON.

    Raises:
        ConfigError: it cannot be made, or not be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if settings is not None:
            (folder / SETTINGS_FILE).write_text(f"{settings}\n", encoding="utf-8")
            (folder / CODE_FILE).write_text(f"{code_version()}\n", encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"cannot write to {key}, {folder}: {cause.strerror}. Make room, or change it.") from cause


def with_run_seed(settings: Settings, seed: int) -> Settings:
    """The same settings, with `seed` for every seed that is None, at any depth."""
    filled: dict[str, object] = {}
    for name, value in settings:
        if isinstance(value, Frozen):
            filled[name] = with_run_seed(value, seed)
        elif name == "seed" and value is None:
            filled[name] = seed
    return settings.model_copy(update=filled)
