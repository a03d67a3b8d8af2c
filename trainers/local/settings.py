"""The settings of the local trainer: one run of one recipe, in the almanac or on own questions, in one process."""

from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rubricem_agent.config.bank import HASHING, BankConfig
from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.tools import ToolsConfig, almanac_unasked, parse_tools
from rubricem_agent.learn.collapse import WatchSettings
from rubricem_agent.learn.drift import DriftSettings
from rubricem_agent.model_names import RULES
from rubricem_agent.policy.base import TINY_SYSTEM, own_system
from rubricem_agent.reflection.candidates import ReflectionSettings
from rubricem_env.domain.base import STAGES, PositiveCount
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.trust.audit import AuditSettings
from rubricem_env.world.judge import JudgeKnobs
from rubricem_env.world.tables.criteria import ANALYSIS_STAGES
from rubricem_records.rollouts.record_settings import WHOLE, Recorded

from ..lora import LoraSettings
from ..settings import RecipeSettings
from .learner import LossSettings

_STAGES_OF_WORLDS = MappingProxyType({"almanac": STAGES, "deep": STAGES, "tables": ANALYSIS_STAGES})


class LocalAuditSettings(AuditSettings):
    """The held-out audit of a run in the almanac, whose held-out judge is another almanac judge."""

    every: Annotated[int, Field(ge=0)] = 0
    """Steps between audits; 0 for none."""
    rubrics: Literal["held_out", "training"] = "held_out"
    """`held_out`: the held-out judge scores by the true criteria of the question. `training`: by the training rubrics.
    """
    seed: int | None = None
    """The seed of the held-out judge; None is the run's."""
    knobs: JudgeKnobs = JudgeKnobs()
    """How the held-out judge deviates from the truth; not at all by default."""


class LocalBankConfig(BankConfig):
    """The bank of a local run, in memory."""

    embedder: str = HASHING
    reference_tokens: PositiveCount = 512
    """The most tokens of the block of lessons before a question."""

    @model_validator(mode="after")
    def _is_in_memory(self) -> "LocalBankConfig":
        if self.folder is not None:
            raise ValueError("a local run keeps its bank in memory and in its checkpoints; leave folder out")
        return self


class LocalConfig(RecipeSettings):
    """A run. Credit and meta-policy together name the recipe of the paper's ablation."""

    policy: Path
    """The folder of the SFT policy: where training starts, and the frozen reference. Any model that `local:PATH` plays.
    """
    out: Path
    """The folder of metrics.jsonl, rollouts and checkpoints."""
    data: Path | None = None
    """Own training questions, as `rubricem data prepare` writes them; None is the almanac with its truth."""
    world: Literal["almanac", "deep", "tables"] = "almanac"
    """Where the questions come from that are not one's own: the almanac, a deeper one whose chains take eleven to
    nineteen searches, or its rivers in tables, for run_sql."""
    held_out_data: Path | None = None
    """Own questions to evaluate on, in the same form: the judge scores them. None evaluates on none."""
    tools: Annotated[
        ToolsConfig, BeforeValidator(lambda given: parse_tools(given) if isinstance(given, str) else given)
    ] = ToolsConfig()
    """Settings, or what `--tools` takes: the folder of an index, a TOML file, the URL of a tool server, `web`."""
    lora: LoraSettings | None = None
    """Train low-rank updates beside frozen weights, which keep their precision; None trains all weights in float32."""
    steps: PositiveCount = 24
    questions_per_step: PositiveCount = 8
    group_size: Annotated[int, Field(ge=2)] = 8
    seed: int = 0
    """Reflections, judge and held-out judge use it too, unless they have their own."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    ahead: Annotated[int, Field(ge=0)] = 0
    """Steps that are sampled before their turn, beside the updates; none beyond the next checkpoint. From 1 on set
    `loss.importance_cap`.
    """
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_turn_tokens: PositiveCount = 512
    micro_batch_tokens: PositiveCount = 4_096
    """The most tokens of one forward and backward pass. Few fit into a processor's cache, and samples share a prompt
    within a pass only.
    """
    rows: PositiveCount = 64
    """The most conversations that are decoded together."""
    threads: Annotated[int, Field(ge=1, exclude=True)] = 1
    """The cores of a CPU that decode and update at once, each a share of the rows or a pass of samples. No number
    depends on it.
    """
    draft_tokens: Annotated[int, Field(ge=0, exclude=True)] = 0
    """The most guesses of a row's next tokens that a pass of sampling checks (speculative decoding by n-grams). The
    same tokens are drawn.
    """
    system: str | None = None
    """The system prompt; "" gives the whole agent prompt. None: the policy's own, or the tiny policy's in the almanac.
    """
    bank: LocalBankConfig = LocalBankConfig()
    """The bank of the lessons. It starts empty, and a checkpoint holds it."""
    loss: LossSettings = LossSettings()
    advantage_rms: Annotated[float, Field(gt=0)] | None = None
    """Scale the advantages of a step to this root mean square over its tokens, to compare methods; None leaves them."""
    limits: EpisodeLimits = EpisodeLimits(max_tokens=1_400)
    reflection: ReflectionSettings = ReflectionSettings(total_tokens=2_400, new_tokens=128, system="Reflect.")
    judge: JudgeConfig = JudgeConfig()
    """In the almanac `rules` is the almanac's own judge."""
    knobs: JudgeKnobs = JudgeKnobs()
    held_out: Literal["validation", "test"] = "validation"
    """The almanac's questions that the run is evaluated on; nothing may be tuned on those of `test`."""
    held_out_limit: Annotated[int, Field(ge=0)] | None = None
    """The most held-out questions of an evaluation, spread evenly over all of them; None asks all, 0 asks none."""
    evaluate_every: PositiveCount = 8
    checkpoint_every: PositiveCount = 8
    compare_gradients_every: Annotated[int, Field(ge=0, exclude=True)] = 0
    """Steps between measurements of the cosine between the two phases' gradients, which cost as much as the updates;
    0 for none. It changes no update, so a resumed run may change it."""
    record: Annotated[Recorded, Field(exclude=True)] = WHOLE
    """Record rollouts, judgements, rubrics and bank step by step for `rubricem view`; changes nothing in training. true
    records all, `{every: 10, attempts: 2}` two attempts of each group in every tenth step, false nothing.
    """
    probe: Annotated[bool, Field(exclude=True)] = True
    """Ask judges and search engine for one token before the first step."""
    watch: Annotated[WatchSettings, Field(exclude=True)] = WatchSettings()
    """When the run counts as lost and stops. Not saved with the settings: a resumed run may change it."""
    drift: Annotated[DriftSettings, Field(exclude=True)] = DriftSettings()
    """When judge and truth count as parted. That writes a warning and stops nothing."""
    held_out_judge: Annotated[LocalAuditSettings, Field(exclude=True)] = LocalAuditSettings()
    """The held-out judge beside the training judge; off by default. It changes nothing in training."""

    @property
    def has_almanac_judge(self) -> bool:
        return self.data is None and self.judge.judge == RULES and not self.judge.also

    @model_validator(mode="after")
    def _can_be_trained(self) -> "LocalConfig":
        stages, own = self.stage_set.scaffold.names, _STAGES_OF_WORLDS[self.world]
        if self.data is None and stages != own:
            raise ValueError(
                f"scaffold is {self.scaffold}, with the stages {', '.join(stages)}, and the questions of the world "
                f"{self.world} are of the stages {', '.join(own)}. Set world to another one, or data to questions of "
                "your own"
            )
        if self.data is None and self.held_out_data is not None:
            raise ValueError(
                "held_out_data is set without data; the almanac is evaluated on its own questions (held_out)"
            )
        questions = f"the questions of {self.data}"
        if self.data is not None and (problem := almanac_unasked(self.tools, questions=questions, key="tools")):
            raise ValueError(problem)
        if self.world == "tables" and self.credit == "igpo":
            raise ValueError("credit igpo asks for the gold answers of the almanac; in the world tables leave it out")
        if self.data is not None and (self.held_out_judge.every or self.credit == "igpo"):
            raise ValueError(
                "held_out_judge and credit igpo need the truth, which own questions have not; leave them out"
            )
        return self


def with_system(config: LocalConfig) -> LocalConfig:
    """The settings with the system prompt that None stands for, as a run records them."""
    if config.system is not None:
        return config
    system = own_system(config.policy) or (TINY_SYSTEM if config.data is None else "")
    return config.model_copy(update={"system": system})
