"""The settings of the local trainer: one run of one recipe in the almanac, in one process."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rubricem_agent.learn.credit import CreditSettings
from rubricem_agent.learn.curriculum import OnMiss, ReflectPhase
from rubricem_agent.learn.monitor import DriftSettings, WatchSettings
from rubricem_agent.memory.inject import ReferenceSettings
from rubricem_agent.policy.base import TINY_SYSTEM
from rubricem_agent.reflection.candidates import ReflectionSettings, check_trainable
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.audit import AuditSettings
from rubricem_env.judge.base import JudgeSettings
from rubricem_env.world.judge import JudgeKnobs

from .learner import LossSettings

Count = Annotated[int, Field(ge=1)]


class LocalAuditSettings(AuditSettings):
    """The held-out audit of a local run, whose held-out judge is another almanac judge."""

    every: Annotated[int, Field(ge=0)] = 0
    """Steps between audits; 0 for none."""
    rubrics: Literal["held_out", "training"] = "held_out"
    """`held_out`: the held-out judge scores by the true criteria of the question. `training`: by the training rubrics."""
    seed: int | None = None
    """None is the run's seed."""
    knobs: JudgeKnobs = JudgeKnobs()
    """How the held-out judge deviates from the truth; not at all by default."""


class LocalConfig(CreditSettings):
    """A run. Credit and meta-policy together name the recipe of the paper's ablation."""

    policy: Path
    """The folder of the SFT policy: where training starts, and the frozen reference."""
    out: Path
    """The folder of metrics.jsonl, rollouts and checkpoints."""
    meta_policy: bool = True
    """Reflect, keep the best reflection in the bank, and train on all of them one step late."""
    reflect_phase: ReflectPhase = "new"
    """`new` reflects at the first encounter of a window, `all` at repeats too."""
    on_miss: OnMiss = "none"
    """What a repeat is shown when its own lesson failed or is late: nothing (`none`), or similar questions' (`cross`)."""
    references: ReferenceSettings = ReferenceSettings()
    steps: Count = 24
    questions_per_step: Count = 8
    group_size: Annotated[int, Field(ge=2)] = 8
    window: Count = 3
    """Steps between a question and its repeat."""
    seed: int = 0
    """Reflections, judge and held-out judge use it too, unless they have their own."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_turn_tokens: Count = 512
    micro_batch_tokens: Count = 4_096
    """Of one forward and backward pass. Few fit into a processor's cache; samples share a prompt within a pass only."""
    rows: Count = 64
    """Conversations decoded together."""
    system: str = TINY_SYSTEM
    """The tiny policy's system prompt; "" gives the whole agent prompt."""
    reference_tokens: Count = 512
    """Limit of the bank's block before a question."""
    loss: LossSettings = LossSettings()
    advantage_rms: Annotated[float, Field(gt=0)] | None = None
    """Scale the advantages of a step to this root mean square over its tokens, to compare methods; None leaves them."""
    limits: EpisodeLimits = EpisodeLimits(max_tokens=1_400)
    reflection: ReflectionSettings = ReflectionSettings(total_tokens=2_400, new_tokens=128, system="Reflect.")
    judge: JudgeSettings = JudgeSettings()
    knobs: JudgeKnobs = JudgeKnobs()
    held_out: Literal["validation", "test"] = "validation"
    """The questions that the run is evaluated on; nothing may be tuned on those of `test`."""
    evaluate_every: Count = 8
    checkpoint_every: Count = 8
    compare_gradients_every: Annotated[int, Field(ge=0, exclude=True)] = 0
    """Steps between measurements of the cosine between the two phases' gradients, which cost as much as the updates;
    0 for none. It changes no update, so a resumed run may change it."""
    record: Annotated[bool, Field(exclude=True)] = True
    """Record rollouts, judgements, rubrics and bank step by step for `rubricem view`; changes nothing in training."""
    watch: Annotated[WatchSettings, Field(exclude=True)] = WatchSettings()
    """When the run counts as lost and stops. Not saved with the settings: a resumed run may change it."""
    drift: Annotated[DriftSettings, Field(exclude=True)] = DriftSettings()
    """When judge and truth count as parted. That writes a warning and stops nothing."""
    held_out_judge: Annotated[LocalAuditSettings, Field(exclude=True)] = LocalAuditSettings()
    """The held-out judge beside the training judge; off by default. It changes nothing in training."""

    @model_validator(mode="after")
    def _can_be_trained(self) -> "LocalConfig":
        if self.meta_policy:
            check_trainable(self.reflection)
        return self
