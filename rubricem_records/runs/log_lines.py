"""The lines of a run's metrics.jsonl, one for each step, evaluation, benchmark and warning.

The models name what a reader needs; a line may hold more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from rubricem_env.domain.base import Frozen
from rubricem_env.judge.trust.audit import Audit


class Line(Frozen):
    """The base of everything in a line: unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=False)


class StageMetrics(Line):
    """Means over the policy's tokens of one stage, and the stage's share of the loss."""

    tokens: int
    entropy: float
    kl: float
    clip_share: float = 0.0
    """Tokens at which the clip stopped the gradient."""
    loss_share: float = 0.0
    """The share of the summed |loss_t|; Research tokens dominate under `token-mean`."""


class UpdateMetrics(Line):
    """The measurements of one optimiser step."""

    loss: float
    grad_norm: float
    tokens: int
    sampling_gap: float = 0.0
    """Mean |log-probability here - as sampled|: the two engines' disagreement plus the weights' age."""
    rollout_kl: float | None = None
    """Mean of log-probability as sampled - here, nats a token: an estimate of KL(sampled from, trained)."""
    capped: float | None = None
    """The share of tokens whose importance weight was cut; None without the correction."""
    stages: dict[str, StageMetrics]

    @property
    def entropy(self) -> float:
        """The entropy in nats a token, over all stages."""
        return self._token_mean([stage.tokens * stage.entropy for stage in self.stages.values()])

    @property
    def kl(self) -> float:
        """The KL divergence from the reference in nats a token, over all stages."""
        return self._token_mean([stage.tokens * stage.kl for stage in self.stages.values()])

    def _token_mean(self, sums: Sequence[float]) -> float:
        return sum(sums) / max(1, sum(stage.tokens for stage in self.stages.values()))


class RolloutStats(Line):
    """How the rollouts of a step were written, whatever their scores."""

    answer_words: float
    """Mean length of an answer; an attempt without an answer counts as 0 words."""
    repeated_calls: float
    """The share of calls that repeat an earlier one of the same attempt; 0 without calls."""
    valid: float
    """The share of attempts that strict mode accepts."""
    policy_tokens: int
    """Sampled tokens of all rollouts."""
    windows: float | None = None
    """Windows a rollout; None where nothing was folded."""
    prompts_again: float | None = None
    """The tokens of later windows' prompts, as a share of all tokens that the policy read: folding computes them again.
    """


class GradientMetrics(Line):
    """The task's gradient compared with the reflections', at the same weights."""

    cosine: float
    """The cosine of the two gradients, from -1 to 1; 0 where either gradient is 0."""
    task_norm: float
    """Before clipping."""
    reflection_norm: float


class StepLine(Line):
    """A training step."""

    step: int
    encounter: str
    """`new`, `repeat`, or `new and repeat` where a step mixes two steps of the curriculum."""
    curriculum: list[int] = Field(default_factory=list)
    """The steps of the curriculum that its questions belong to."""
    true: dict[str, float]
    judged: dict[str, float | None]
    trained_rollouts: int = 0
    fallbacks: int = 0
    """Rollouts in which scoring a stage failed and the group's mean stands in."""
    task: UpdateMetrics | None = None
    reflection: UpdateMetrics | None = None
    utility: float | None = None
    readable: float | None = None
    bank: int = 0
    rollout_stats: RolloutStats | None = None
    refused: dict[str, dict[str, int]] = Field(default_factory=dict)
    """What gates and format refused in the step, counted by reason: of `rubrics` and of `reflections`."""
    spread: dict[str, float] = Field(default_factory=dict)
    """The share of groups whose scores differ, by stage."""
    gradients: GradientMetrics | None = None
    audit: Audit | None = None
    """None where the step was not audited."""
    seconds: dict[str, float] = Field(default_factory=dict)


NumberPath = tuple[str, ...]
"""Where a step's line has a number: the names that lead to it."""


def read_number(line: StepLine, path: NumberPath) -> float | None:
    """The number at a path of a line; None where it, or what would hold it, was not measured."""
    value: Any = line
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
        if value is None:
            return None
    return float(value)


ScoredBy = Literal["truth", "judge"]


class EvaluationLine(Line):
    """The policy on held-out questions."""

    step: int
    held_out: dict[str, float]
    """The mean score of each stage; own questions have only the stages that they have rubrics for."""
    valid: float
    by: ScoredBy = "truth"


class BenchmarkLine(Line):
    """A checkpoint's score on a benchmark, with its interval."""

    step: int
    benchmark: str
    score: float
    low: float
    high: float


class WarningLine(Line):
    """Something that a person should look at."""

    step: int
    warning: str


LogLine = StepLine | EvaluationLine | BenchmarkLine | WarningLine


def parse_line(fields: Mapping[str, Any]) -> LogLine:
    """One line, its kind told by its keys; pydantic's ValidationError where the keys fit none."""
    if "held_out" in fields:
        return EvaluationLine.model_validate(fields)
    if "benchmark" in fields:
        return BenchmarkLine.model_validate(fields)
    return WarningLine.model_validate(fields) if "warning" in fields else StepLine.model_validate(fields)
