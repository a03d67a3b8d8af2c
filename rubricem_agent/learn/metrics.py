"""A run's metrics.jsonl: a line for each step, evaluation and warning, written by a trainer and read by everyone else.

The models below name what a reader needs; a line may hold more. `measure_rollouts` computes the rollout statistics
of a step, which the collapse detectors watch.

`read_run` reads a run's settings too, which tell the recipe that it was trained by. The recipes are those of ablations: the
paper's four, the credit methods, and the ways to train with lessons; each is a set of changes to a config.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import from_json

from rubricem_agent.files import LineFile, writing
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env import __version__
from rubricem_env.domain.base import STAGES, Frozen
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import package_text, refuse_other_than_file, validating
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.judge.audit import Audit

METRICS_FILE = "metrics.jsonl"
SETTINGS_FILE = "config.json"
"""The settings of the run, as its last start had them."""
CODE_FILE = "code.txt"
"""The version of the code that last started the run."""


def code_version() -> str:
    """The release, and in a clone its commit, with -dirty after it where files were changed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or not which("git"):
        return f"rubricem {__version__}"
    told = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return f"rubricem {__version__}, commit {subprocess.run(told, capture_output=True, text=True).stdout.strip()}"


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
    """Of the summed |loss_t|; Research tokens dominate under `token-mean` (choice D2)."""


def report_by_stage(sums: Sequence[Sequence[float]]) -> dict[str, StageMetrics]:
    """Metrics of each stage that has tokens, by its name, from sums over a whole batch.

    `sums` are tokens, entropy, KL, clipped tokens and |loss_t|, each with a number for each stage.
    """
    whole = sum(sums[-1])
    return {
        stage.value: StageMetrics(
            tokens=int(count),
            entropy=entropy / count,
            kl=kl / count,
            clip_share=clipped / count,
            loss_share=magnitude / whole if whole > 0 else 0.0,
        )
        for stage, count, entropy, kl, clipped, magnitude in zip(STAGES, *sums, strict=True)
        if count
    }


class UpdateMetrics(Line):
    """One optimiser step."""

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
        """Nats a token, over all stages."""
        return self._token_mean([stage.tokens * stage.entropy for stage in self.stages.values()])

    @property
    def kl(self) -> float:
        """From the reference, nats a token, over all stages."""
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


class GradientMetrics(Line):
    """The task's gradient compared with the reflections', at the same weights."""

    cosine: float
    """From -1 to 1; 0 where either gradient is 0."""
    task_norm: float
    """Before clipping."""
    reflection_norm: float


class StepLine(Line):
    """A training step."""

    step: int
    encounter: str
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
    """None in the logs of older runs."""
    refused: dict[str, dict[str, int]] = Field(default_factory=dict)
    """What gates and format refused in the step, counted by reason: of `rubrics` and of `reflections`."""
    spread: dict[str, float] = Field(default_factory=dict)
    """By stage: the share of groups whose scores differ."""
    gradients: GradientMetrics | None = None
    audit: Audit | None = None
    """None where the step was not audited."""
    seconds: dict[str, float] = Field(default_factory=dict)


NumberPath = tuple[str, ...]
"""Where a step's line has a number: the names that lead to it."""


def read_number(line: StepLine, path: NumberPath) -> float | None:
    """The number at a path of a line; None where it, or what would hold it, was not measured."""
    found: Any = line
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else getattr(found, name)
        if found is None:
            return None
    return float(found)


ScoredBy = Literal["truth", "judge"]


class EvaluationLine(Line):
    """The policy on held-out questions."""

    step: int
    held_out: dict[str, float]
    """By stage; of own questions, only the stages that they have rubrics for."""
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
    alarm: str


LogLine = StepLine | EvaluationLine | BenchmarkLine | WarningLine
_FIELDS = TypeAdapter(dict[str, Any])


class RunLog(NamedTuple):
    """The log of a run; each list in the order of steps, the latest line of a step counts."""

    steps: list[StepLine]
    evaluations: list[EvaluationLine]
    warnings: list[WarningLine]
    benchmarks: Sequence[BenchmarkLine] = ()


def read_log(folder: Path) -> RunLog:
    """The log in a run's folder. A truncated last line is skipped.

    Raises:
        FileFormatError: there is no log, or another line cannot be read.
    """
    path = folder / METRICS_FILE
    try:
        written = _complete_lines(path)
    except OSError as cause:
        raise FileFormatError(
            f"{folder} holds no {METRICS_FILE}, so it is no run's folder ({cause.strerror}); give the folder that the "
            "config names as `out`, after the first step."
        ) from cause
    lines = [_read_line(line, f"{path}:{number}") for number, line in enumerate(written, 1)]
    steps = {line.step: line for line in lines if isinstance(line, StepLine)}
    evaluations = {line.step: line for line in lines if isinstance(line, EvaluationLine)}
    benchmarks = {(line.step, line.benchmark): line for line in lines if isinstance(line, BenchmarkLine)}
    warnings = dict.fromkeys(line for line in lines if isinstance(line, WarningLine))
    return RunLog(
        [steps[step] for step in sorted(steps)],
        [evaluations[step] for step in sorted(evaluations)],
        sorted(warnings, key=lambda line: line.step),
        [benchmarks[at] for at in sorted(benchmarks)],
    )


def answers_by_step(logs: Sequence[RunLog]) -> dict[int, list[float]]:
    """The held-out answers of each run, at the steps at which all runs were evaluated."""
    curves = [{line.step: line.held_out["answer"] for line in log.evaluations} for log in logs]
    shared = sorted(set.intersection(*map(set, curves))) if curves else []
    return {step: [curve[step] for curve in curves] for step in shared}


def parse_line(fields: Mapping[str, Any]) -> LogLine:
    """One line, its kind told by its keys; pydantic's ValidationError where the keys fit none."""
    if "held_out" in fields:
        return EvaluationLine.model_validate(fields)
    if "benchmark" in fields:
        return BenchmarkLine.model_validate(fields)
    return WarningLine.model_validate(fields) if "alarm" in fields else StepLine.model_validate(fields)


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Add a line.

    Raises:
        ConfigError: the disk refuses.
    """
    with writing(path, "Make room; the same command resumes from the last checkpoint."):
        LineFile(path).append([json.dumps(fields, allow_nan=False).encode()])


def follow_log(folder: Path) -> Callable[[], Iterator[LogLine]]:
    """A reader of a log that is being written: each call returns the lines since the call before, in their order.

    Lines that are in the log now are left out. A resumed run writes some steps again: those count as new. A caller that
    is interrupted at a line gets it again.
    """
    path = folder / METRICS_FILE

    def present() -> list[str]:
        try:
            return _complete_lines(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    seen = set(present())

    def new_lines() -> Iterator[LogLine]:
        for line in present():
            if line not in seen:
                yield _read_line(line, str(path))
                seen.add(line)

    return new_lines


def _complete_lines(path: Path) -> list[str]:
    refuse_other_than_file(path, "log")
    text = path.read_text(encoding="utf-8", errors="replace")
    return text[: text.rfind("\n") + 1].splitlines()


def _read_line(line: str, where: str) -> LogLine:
    with validating(f"{where} is no line of a run", "Delete the line, or restore the file."):
        return parse_line(_FIELDS.validate_json(line))


def measure_rollouts(groups: Sequence[Sequence[Rollout]]) -> RolloutStats:
    """The statistics of a step's groups, abandoned rollouts included."""
    rollouts = [rollout for group in groups for rollout in group]
    trajectories = [rollout.parsed for rollout in rollouts]
    calls = [[turn.call for turn in parsed.turns if turn.call is not None] for parsed in trajectories]
    return RolloutStats(
        answer_words=float(np.mean([len((parsed.answer or "").split()) for parsed in trajectories])),
        repeated_calls=sum(map(count_repeats, calls)) / max(1, sum(map(len, calls))),
        valid=float(np.mean([not parsed.rejections for parsed in trajectories])),
        policy_tokens=sum(int(rollout.tokens.policy_mask.sum()) for rollout in rollouts if rollout.tokens is not None),
    )


def mean_by_stage(rows: Sequence[Sequence[float | None]]) -> dict[str, float | None]:
    """The means of rows with a number for each stage; None for a stage without a number."""
    means: dict[str, float | None] = {}
    for stage in STAGES:
        numbers = [value for row in rows if (value := row[stage.position]) is not None]
        means[stage.value] = round(float(np.mean(numbers)), 4) if numbers else None
    return means


def spread_shares(groups: Sequence[Sequence[Judgement]]) -> dict[str, float]:
    """By stage: the share of judged groups whose scores of it differ. Without a spread no credit method can learn."""
    shares = {}
    for stage in STAGES:
        scores = ({judgement.score(stage) for judgement in group} - {None} for group in groups)
        shares[stage.value] = float(np.mean([len(given) > 1 for given in scores])) if groups else 0.0
    return shares


def count_repeats(calls: Sequence[ToolCall]) -> int:
    """Calls that ask the same thing as an earlier one."""
    return len(calls) - len({call.identity for call in calls})


class Recipe(NamedTuple):
    """A way to train, as changes to a config: which credit, and whether the policy reflects."""

    name: str
    """Also its folder's name."""
    title: str
    credit: str
    meta_policy: bool
    more: Sequence[str] = ()
    """Further changes."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes as KEY=VALUE."""
        return (f"credit={self.credit}", f"meta_policy={'true' if self.meta_policy else 'false'}", *self.more)


_TABLE = json.loads(package_text("rubricem_agent.learn", "recipes.json"))
RECIPES, _METHODS, _REFERENCES = (tuple(Recipe(**row) for row in rows) for rows in _TABLE.values())
"""The four of the paper's ablation, the other credit methods, and the other ways to train with lessons."""
BASELINE, SS_GRPO = RECIPES[:2]
METHODS = (*RECIPES[:2], *_METHODS)
"""The credit methods."""
REFERENCES = (*RECIPES[2:], *_REFERENCES)
"""The ways to train with lessons."""
KNOWN = (*METHODS, *REFERENCES)


def choose_recipes(names: str) -> tuple[Recipe, ...]:
    """The recipes of `credit`, `references`, `all` or names with commas; SS-GRPO and answer-only GRPO always.

    Raises:
        UsageError: there is no such recipe.
    """
    sets = {"credit": METHODS, "references": (*METHODS[:2], *REFERENCES), "all": KNOWN}
    if names in sets:
        return sets[names]
    known = {one.name: one for one in KNOWN}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no method {name!r}; give {', '.join(sets)}, or some of {', '.join(known)}.")
    return tuple(one for name, one in known.items() if name in wanted or one in METHODS[:2])


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, each value as JSON writes it."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False)
    return flat


def refuse_other_run(folder: Path, saved: str, here: str) -> None:
    """Refuse what was written with other settings or samples; the sentence names those that differ.

    Raises:
        UsageError: it was; a FileFormatError where its settings cannot be read.
    """
    if saved == here:
        return
    with validating(f"{folder} holds damaged settings", "Restore them, or use another folder for `out`."):
        before, now = _settings_in(saved), _settings_in(here)
    differing = [
        f"{name} was {before.get(name, 'not set')} and is {now.get(name, 'not set')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    raise UsageError(
        f"{folder} belongs to a run with other settings or samples: {'; '.join(differing)}. Resuming would mix the two: "
        "put the settings back, or use another folder for `out`."
    )


def _settings_in(identity: str) -> dict[str, str]:
    """The settings of an identity by name: a JSON object, or `name=value` pairs."""
    if identity.startswith("{"):
        return flatten_settings(_FIELDS.validate_json(identity))
    return dict(re.findall(r"(\w+)=([^\s,()]+)", identity))


class RecordedRun(NamedTuple):
    """A run's folder, read."""

    folder: Path
    settings: dict[str, Any]
    """Empty where the folder has none."""
    log: RunLog

    @property
    def recipe(self) -> str | None:
        """Its name in the ablation."""
        key = (self.settings.get("credit"), self.settings.get("meta_policy"))
        return next((one.name for one in KNOWN if (one.credit, one.meta_policy) == key and not one.more), None)

    @property
    def title(self) -> str:
        return next((one.title for one in KNOWN if one.name == self.recipe), "a training run")


def read_run(folder: Path) -> RecordedRun:
    """A run's log and settings.

    Raises:
        FileFormatError: the folder holds no run, or its settings are no JSON object.
    """
    log = read_log(folder)
    path = folder / SETTINGS_FILE
    try:
        written = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        # Once more, because a lone surrogate or a deeper nesting could not be served as JSON.
        settings = from_json(json.dumps(written, ensure_ascii=False).encode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError) as cause:
        raise FileFormatError(
            f"{path} cannot be read as JSON: {cause}. Start the run's command again to write it anew."
        ) from cause
    if not isinstance(settings, dict):
        raise FileFormatError(f"{path} holds no JSON object. Start the run's command again to write it anew.")
    return RecordedRun(folder, settings, log)
