"""The `rubricem` section of a veRL config.

Questions per step (`data.train_batch_size`), group size (`actor_rollout_ref.rollout.n`), temperature, learning rate,
KL, the importance cap (`algorithm.rollout_correction.rollout_is_threshold`), steps and checkpoints keep veRL's own
keys, so that each has one key. The values that all our runs share are in configs/base_verl.yaml.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.sections import read_mapping
from rubricem_agent.config.tools import ToolsConfig, almanac_unasked
from rubricem_agent.learn.collapse import WatchSettings
from rubricem_env.domain.base import STAGES, PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.stage_set import StageSet, is_shipped
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.trust.audit import AuditSettings
from rubricem_env.world.judge import JudgeKnobs
from rubricem_records.rollouts.record_settings import WHOLE, Recorded

from ..settings import RecipeSettings

SECTION = "rubricem"
Seconds = Annotated[float, Field(gt=0)]


class TimeLimits(Settings):
    """Seconds that the parts of a step may take before the run stops with an error instead of hanging."""

    sync: Seconds = 600.0
    """The limit of bringing weights from the trainer to the sampling engines."""
    update: Seconds = 7_200.0
    """The limit of one pass over a batch by the workers: log-probabilities, or an optimiser step."""
    sample: Seconds = 7_200.0
    """The limit of sampling and judging a step's rollouts."""
    lesson: Seconds = 60.0
    """The limit of waiting for the question's own lesson at a repeat, which is sampled without it afterwards."""


class OutageSettings(Settings):
    """A judge that answers nothing pauses the run: one group probes it, the others wait, and nothing is lost."""

    patience: Annotated[float, Field(ge=0)] = 3_600.0
    """An outage of so many seconds stops the run; 0 stops it at once."""
    probe: Seconds = 60.0
    """Seconds between two probes, each of which judges one whole group."""


class AlmanacSettings(Settings):
    """Train in the shipped almanac: its questions, its pages, its judge."""

    knobs: JudgeKnobs = JudgeKnobs()
    """How the judge deviates from the truth."""


class HeldOutJudgeSettings(AuditSettings):
    """A judge that the policy is not trained on, which scores a fixed sample of the rollouts."""

    every: PositiveCount = 10
    """Steps between audits."""
    judge: JudgeConfig | None = None
    """The held-out judge; None only in the almanac, where it is the almanac's without its knobs."""


_LOCAL_CREDIT = {
    "igpo": "needs the probability of the gold answer after every turn, which veRL's engines are not asked for",
    "gdpo": "scales by the spread over all rollouts of a step, and on veRL each group is credited when it is judged",
}


class VerlSettings(RecipeSettings):
    """A run of RubricEM on veRL, beside veRL's own keys; the defaults are the paper's."""

    ahead: Annotated[int, Field(ge=0)] | None = None
    """Steps whose questions are sampled before their turn; None is `num_warmup_batches` of veRL's mode."""
    max_age: PositiveCount | None = None
    """Updates between the sampling of a group and its training; older groups are dropped. None: twice `ahead`, plus 2.
    """
    seed: int = 0
    questions: Path | None = None
    """JSONL, one `Query` a line, as `rubricem data prepare` writes it; not read in the almanac."""
    almanac: AlmanacSettings | None = None
    """The almanac instead of your own questions and judge."""
    system: str = ""
    """The system prompt; "" gives the agent's whole prompt."""
    max_turn_tokens: PositiveCount = 8_192
    limits: EpisodeLimits = EpisodeLimits()
    judge: JudgeConfig = JudgeConfig()
    """In the almanac only `judge.settings` is used."""
    held_out_judge: HeldOutJudgeSettings | None = None
    """Score a sample with a second judge, and warn when the two judges part; None does not. It changes nothing in
    training.
    """
    bank: BankConfig = BankConfig()
    tools: ToolsConfig = ToolsConfig()
    time_limits: TimeLimits = TimeLimits()
    outage: OutageSettings = OutageSettings()
    watch: WatchSettings = WatchSettings()
    """When the run counts as lost and stops."""
    evicted_limit: Annotated[float, Field(ge=0)] = 0.2
    """Groups of a step that veRL may evict and replace, as a share of the step; more of them stop the run."""
    record: Recorded = WHOLE
    """Keep rollouts, judgements, rubrics and bank step by step for `rubricem view`; changes nothing in training. true
    keeps all, `{every: 10, attempts: 2}` two attempts of each group in every tenth step, false nothing.
    """

    shipped_stages: Annotated[str, Field(exclude=True)] = ""
    """The stage set of `scaffold` as JSON: a run writes it for its workers on other nodes. Leave it out."""

    @property
    def stage_set(self) -> StageSet:
        """The stage set that `scaffold` names, or that the run has shipped.

        Raises:
            ConfigError: there is none, or it breaks a rule.
        """
        return _shipped_set(self.shipped_stages) if self.shipped_stages else super().stage_set

    @model_validator(mode="after")
    def _is_complete(self) -> "VerlSettings":
        stages = self.stage_set.scaffold.names
        if self.almanac is not None and stages != STAGES:
            raise ValueError(
                f"scaffold is {self.scaffold}, with the stages {', '.join(stages)}, and the questions of the almanac "
                f"are of the stages {', '.join(STAGES)}. Leave almanac out, and name a file in rubricem.questions"
            )
        if self.credit in _LOCAL_CREDIT:
            raise ValueError(
                f"credit {self.credit} {_LOCAL_CREDIT[self.credit]}; train it with trainers/local_ssgrpo.py, or choose "
                "another method"
            )
        if self.held_out_judge is not None and self.held_out_judge.judge is None and self.almanac is None:
            raise ValueError(
                "held_out_judge names no judge; add held_out_judge: {judge: {judge: gemini:MODEL}}, other than the "
                "run's"
            )
        if self.reflection.kl_coefficient is not None:
            raise ValueError("reflection.kl_coefficient is read by the local trainer only: veRL's workers have one KL")
        if self.questions is None and self.almanac is None:
            raise ValueError(
                "there are no questions to train on; name a file in rubricem.questions, or train in the almanac with "
                "rubricem.almanac={}"
            )
        questions = f"the questions of {self.questions}"
        if self.almanac is None and (problem := almanac_unasked(self.tools, questions=questions, key="rubricem.tools")):
            raise ValueError(problem)
        return self


def read_section(section: object) -> VerlSettings:
    """The settings of a `rubricem` section, as plain mappings and lists.

    Raises:
        ConfigError: it is no mapping, a key is unknown at any depth, or a value is out of its range.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"the config has no section `{SECTION}`; start from configs/verl_almanac_cpu.yaml.")
    return read_mapping(section, VerlSettings, where=f"the section {SECTION}")


@lru_cache(maxsize=8)
def _shipped_set(text: str) -> StageSet:
    return StageSet.model_validate_json(text)


def shipped_stages(settings: VerlSettings) -> dict[str, object]:
    """The keys that bring a stage set of the user's own to nodes that may not have its folder."""
    own = settings.stage_set
    if is_shipped(settings.scaffold):
        return {}
    # A dollar sign would begin an interpolation.
    text = own.model_dump_json().replace("$", "\\u0024")
    return {"shipped_stages": text, "matrix": [list(row) for row in settings.matrix or own.matrix]}


def relative_paths(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """The dotted keys of all relative paths, at any depth, each with its absolute one.

    Processes with other working directories would lose them.
    """
    for name, value in settings:
        if isinstance(value, Path) and not value.is_absolute():
            yield f"{prefix}{name}", value.expanduser().absolute()
        elif isinstance(value, BaseModel):
            yield from relative_paths(value, f"{prefix}{name}.")
