"""The `rubricem` section of a veRL config: all that veRL has no key for.

Questions per step (`data.train_batch_size`), group size (`actor_rollout_ref.rollout.n`), temperature, learning rate,
KL, steps and checkpoints keep veRL's own keys, so that none is said twice.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.memory import BankConfig
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.learn.collapse import WatchSettings
from rubricem_agent.learn.credit import PAPER_MATRIX, CreditMode, check_matrix
from rubricem_agent.reflection.generate import ReflectionSettings, check_trainable
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.world.judge import JudgeKnobs
from trainers.settings_file import refuse_unknown

SECTION = "rubricem"
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class TimeLimits(Frozen):
    """How long a step's parts may take before the run stops with a sentence instead of hanging."""

    sync: Seconds = 600.0
    """Weights from the trainer to the sampling engines."""
    update: Seconds = 7_200.0
    """One pass over a batch by the workers: log-probabilities, or an optimiser step."""
    sample: Seconds = 7_200.0
    """A step's rollouts, judged."""
    lesson: Seconds = 60.0
    """The question's own lesson, at a repeat; after it the question goes without (choice C13)."""


class AlmanacSettings(Frozen):
    """Train in the shipped almanac: its questions, its pages, its judge."""

    knobs: JudgeKnobs = JudgeKnobs()
    """How the judge strays from the truth."""


class VerlSettings(Frozen):
    """What a run of RubricEM on veRL is, beside veRL's own keys; the defaults are the paper's."""

    credit: CreditMode = "stages"
    """`stages` is SS-GRPO; `terminal` is answer-only GRPO."""
    meta_policy: bool = True
    """Reflect, keep the best reflection in the bank, and train on all of them one step late."""
    matrix: tuple[tuple[float, ...], ...] = PAPER_MATRIX
    """Lambda: what a stage earns of the scores downstream of it."""
    window: Count = 3
    """Steps between a question and its repeat."""
    seed: int = 0
    questions: Path | None = None
    """JSONL, one `Query` a line, as `rubricem data prepare` writes it; not read in the almanac."""
    almanac: AlmanacSettings | None = None
    """The almanac instead of questions and a judge of one's own."""
    system: str = ""
    """The system prompt; "" gives the agent's whole prompt."""
    max_turn_tokens: Count = 8_192
    limits: EpisodeLimits = EpisodeLimits()
    reflection: ReflectionSettings = ReflectionSettings()
    reflection_mini_batch: Count | None = None
    """Reflections of one optimiser step of Phase A; None makes one step of all that have come in."""
    judge: JudgeConfig = JudgeConfig()
    """Not asked in the almanac, whose judge keeps the rubrics by `judge.settings` all the same."""
    bank: BankConfig = BankConfig()
    tools: ToolsConfig = ToolsConfig()
    time_limits: TimeLimits = TimeLimits()
    watch: WatchSettings = WatchSettings()
    """When the run counts as lost and stops."""
    record: bool = True
    """Keep rollouts, judgements, rubrics and bank step by step for `rubricem view`; changes nothing in training."""

    @model_validator(mode="after")
    def _is_whole(self) -> "VerlSettings":
        check_matrix(self.matrix)
        if self.meta_policy:
            check_trainable(self.reflection)
        if self.questions is None and self.almanac is None:
            raise ValueError(
                "there are no questions to train on; name a file in rubricem.questions, or train in the almanac with "
                "rubricem.almanac={}"
            )
        return self


def read_section(section: object) -> VerlSettings:
    """The settings of a `rubricem` section, as plain mappings and lists.

    Raises:
        ConfigError: it is no mapping, a key is unknown at any depth, or a value is out of its range.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"the config has no section `{SECTION}`; start from configs/verl_almanac_cpu.yaml.")
    refuse_unknown(section, VerlSettings, where=SECTION)
    try:
        # Not strict: YAML has strings for paths and lists for tuples.
        return VerlSettings.model_validate(section, strict=False)
    except ValidationError as cause:
        raise ConfigError(f"the section `{SECTION}` is refused {first_problem(cause)}") from cause
