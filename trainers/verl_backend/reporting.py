"""What a run on veRL writes: metrics.jsonl and config.json as in the local trainer, metrics for trackers, the record.

A group is judged and credited before a step trains on it. Its report and its record wait until then, and stand under
the trainer's step, which is later than the question's own where steps are sampled ahead.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.metrics import METRICS_FILE, append_line, count_repeats, read_log
from rubricem_agent.learn.monitor import WatchSettings, find_collapse, find_divergence
from rubricem_agent.learn.record import RECORD_FOLDER, FourNumbers, GroupEntry, RolloutEntry, RunRecorder
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import NO_STAGE
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import RubricEMError

from ..settings import make_out
from .settings import VerlSettings

PREFIX = "rubricem"
SWITCH = "rubricem.record=false"
"""The setting that turns the record off."""


def write_settings(folder: Path, settings: VerlSettings, config: Any) -> None:
    """Write the settings of this start beside the log; veRL's own keys under the names that the local trainer has.

    Raises:
        ConfigError: the folder cannot be written.
    """
    model = config.actor_rollout_ref
    shared = {
        "trainer": config.trainer.v1.trainer_mode,
        "policy": model.model.path,
        "steps": config.trainer.total_training_steps,
        "questions_per_step": config.data.train_batch_size,
        "group_size": model.rollout.n,
        "learning_rate": model.actor.optim.lr,
        "temperature": model.rollout.temperature,
        "kl_loss_coef": model.actor.kl_loss_coef if model.actor.use_kl_loss else 0.0,
        "checkpoint_every": config.trainer.save_freq,
    }
    text = json.dumps({**shared, **settings.model_dump(mode="json")}, indent=1)
    make_out(folder, settings=text, key="trainer.default_local_dir")


def write_step(folder: Path, step: int, fields: Mapping[str, Any], watch: WatchSettings) -> None:
    """Write the line of a step into the log.

    Raises:
        RubricEMError: the run is lost; the warning is in the log as well.
    """
    append_line(folder / METRICS_FILE, {"step": step, **fields})
    steps = read_log(folder).steps
    divergence = find_divergence(steps)
    if divergence:
        append_line(folder / METRICS_FILE, {"step": step, "alarm": divergence})
    warning = find_collapse(steps, watch)
    if warning:
        append_line(folder / METRICS_FILE, {"step": step, "alarm": warning})
        raise RubricEMError(warning)


def update_metrics(
    metrics: Mapping[str, Any], stages: Mapping[str, Any] | None, *, prefix: str = ""
) -> dict[str, Any] | None:
    """One of a step's two updates, from veRL's metrics; None where it did not take place."""
    norm = metrics.get(f"{prefix}actor/grad_norm")
    if norm is None:
        return None
    by_stage = stages or {}
    return {
        "loss": float(metrics.get(f"{prefix}actor/loss", metrics.get(f"{prefix}actor/pg_loss", 0.0))),
        "grad_norm": float(norm),
        "tokens": sum(int(stage["tokens"]) for stage in by_stage.values()),
        # None in bypass mode, which compares the policy with the sampled tokens in the loss itself.
        "rollout_kl": metrics.get(f"{prefix}rollout_corr/kl"),
        "capped": metrics.get(f"{prefix}rollout_corr/rollout_is_ratio_fraction_high"),
        "stages": dict(by_stage),
    }


class RolloutReport(NamedTuple):
    """What a step reports of one of its rollouts."""

    encounter: str
    judged: FourNumbers
    """As the judge gave them; None where it gave none."""
    true: FourNumbers | None
    """By the truth, in the almanac."""
    answer_words: int
    calls: int
    repeated_calls: int
    is_strict: bool
    """Whether strict mode accepts it."""
    policy_tokens: int
    failure: str
    """Why it is left out of its group, in one sentence; "" where it is valid."""
    is_trained: bool
    has_fallback: bool
    """Scoring a stage failed, and the group's mean stands in."""


def report_rollout(rollout: Rollout, entry: RolloutEntry, *, encounter: str, has_fallback: bool) -> RolloutReport:
    """The report of a rollout that was judged and credited."""
    plan, research, review, answer = (entry.judged.judgement.score(stage) for stage in STAGES)
    is_valid = rollout.is_valid and entry.judged.is_valid
    return lost_rollout(
        rollout, encounter, "" if is_valid else rollout.failure or entry.judged.failure or "the judge gave no score"
    )._replace(
        judged=(plan, research, review, answer),
        true=entry.true,
        is_trained=entry.trained,
        has_fallback=has_fallback and is_valid,
    )


def lost_rollout(rollout: Rollout, encounter: str, failure: str) -> RolloutReport:
    """The report of a rollout that was not judged."""
    reading, tokens = rollout.reading, rollout.tokens
    calls = [turn.call for turn in reading.turns if turn.call is not None]
    return RolloutReport(
        encounter,
        judged=(None, None, None, None),
        true=None,
        answer_words=len((reading.answer or "").split()),
        calls=len(calls),
        repeated_calls=count_repeats(calls),
        is_strict=not reading.rejections,
        policy_tokens=int(tokens.policy_mask.sum()) if tokens is not None else 0,
        failure=failure,
        is_trained=False,
        has_fallback=False,
    )


def rollout_means(rows: Sequence[RolloutReport]) -> dict[str, Any]:
    """Means and counts over all rollouts of a step, those that are not trained on included."""
    true = _means_by_stage([row.true for row in rows if row.true is not None])
    return {
        "encounter": Counter(row.encounter for row in rows).most_common(1)[0][0],
        # Empty outside the almanac, where the truth is not known.
        "true": {stage: value for stage, value in true.items() if value is not None},
        "judged": _means_by_stage([row.judged for row in rows]),
        "habits": {
            "answer_words": float(np.mean([row.answer_words for row in rows])),
            "repeated_calls": sum(row.repeated_calls for row in rows) / max(1, sum(row.calls for row in rows)),
            "valid": float(np.mean([row.is_strict for row in rows])),
            "policy_tokens": sum(row.policy_tokens for row in rows),
        },
        "lost": sum(bool(row.failure) for row in rows),
        "trained_rollouts": sum(row.is_trained for row in rows),
        "fallbacks": sum(row.has_fallback for row in rows),
    }


def stage_means(
    stages: npt.NDArray[np.integer], advantages: np.ndarray, *, entropy: np.ndarray, kl: np.ndarray
) -> dict[str, dict[str, float]]:
    """Tokens, entropy, KL and share of the advantages' weight, for each stage that has tokens; arrays are (tokens,).

    `kl` is from the reference, by the loss's own estimator; zeros without a reference.
    """
    weight = np.abs(advantages)
    total = float(weight[stages != NO_STAGE].sum())
    means = {}
    for stage in STAGES:
        mask = stages == stage.position
        if mask.any():
            means[stage.value] = {
                "tokens": int(mask.sum()),
                "entropy": float(entropy[mask].mean()),
                "kl": float(kl[mask].mean()),
                "loss_share": float(weight[mask].sum()) / total if total > 0 else 0.0,
            }
    return means


def flat_metrics(report: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, float]:
    """The numbers in a nested report, under names such as `rubricem/true/answer`."""
    flat: dict[str, float] = {}
    for key, value in report.items():
        name = f"{prefix}/{key}"
        if isinstance(value, Mapping):
            flat |= flat_metrics(value, name)
        elif isinstance(value, list):
            numbers = [one for one in value if isinstance(one, int | float)]
            flat[f"{name}/count"] = float(len(value))
            if numbers:
                flat[f"{name}/mean"] = float(np.mean(numbers))
        elif isinstance(value, int | float):
            flat[name] = float(value)
    return flat


def _means_by_stage(rows: Sequence[Sequence[float | None]]) -> dict[str, float | None]:
    """None for a stage without a number."""
    means: dict[str, float | None] = {}
    for stage in STAGES:
        numbers = [value for row in rows if (value := row[stage.position]) is not None]
        means[stage.value] = round(float(np.mean(numbers)), 4) if numbers else None
    return means


Entries = tuple[GroupEntry, list[RolloutEntry]]


class GroupLedger:
    """The judged groups that no step has trained on yet, by name, and the record that they go to, if the run keeps one."""

    def __init__(self, bank: RubricBank) -> None:
        self._bank = bank
        self._recorder: RunRecorder | None = None
        self._waiting: dict[str, tuple[list[RolloutReport], Entries | None]] = {}
        """Entries have the question's own step; None without a record."""
        self._step, self._taken = 0, 0
        """Of the latest step, and groups taken by it."""

    def begin_record(self, run: Path, step: int, tokenizer: PolicyTokenizer) -> None:
        """Keep a record in the run's folder, after `step`, the last one that is not repeated.

        Raises:
            UsageError: the folder cannot be written.
        """
        self._recorder = RunRecorder(run / RECORD_FOLDER, switch=SWITCH)
        self._recorder.begin(step, embedder=self._bank.embedder_name)
        self._recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])

    def add(self, name: str, reports: list[RolloutReport], entries: Entries | None = None) -> None:
        """Keep a judged group until a step trains on it."""
        self._waiting[name] = (reports, entries if self._recorder is not None else None)

    def take(self, step: int, names: Iterable[str]) -> tuple[list[RolloutReport], list[Entries]]:
        """The groups that a step trains on, in that order: reports of all rollouts, and entries for the record."""
        if step != self._step:
            self._step, self._taken = step, 0
        reports, entries = [], []
        for name in names:
            rows, entry = self._waiting.pop(name)
            reports += rows
            if entry is not None:
                position = {"step": step, "place": self._taken}
                group, rollouts = entry
                moved = [one.model_copy(update=position) for one in rollouts]
                entries.append((group.model_copy(update=position), moved))
                self._taken += 1
        return reports, entries

    def write(self, step: int, entries: Sequence[Entries]) -> None:
        """Write groups that were taken, and the bank's changes; nothing without a record.

        Raises:
            UsageError: the disk refuses.
        """
        if self._recorder is not None:
            self._recorder.record_step(entries)
            self._recorder.record_lessons(self._bank.contents(since=self._recorder.bank_revision), step=step)

    def forget_others(self, held: Collection[str]) -> None:
        """Forget the groups that veRL has dropped."""
        self._waiting = {name: group for name, group in self._waiting.items() if name in held}

    def remove_failed(self, limit: float) -> tuple[str, ...]:
        """Remove the groups in which more than `limit` of the rollouts failed; returns their names."""
        failed = {
            name: rows
            for name, (rows, _) in self._waiting.items()
            if sum(bool(row.failure) for row in rows) > limit * len(rows)
        }
        self.forget_others(self._waiting.keys() - failed.keys())
        return tuple(failed)

    def state_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            name: {
                "reports": [one._asdict() for one in reports],
                "group": entries[0].model_dump(mode="json") if entries else None,
                "rollouts": [one.model_dump(mode="json") for one in entries[1]] if entries else [],
            }
            for name, (reports, entries) in self._waiting.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._waiting = {}
        for name, saved in state.items():
            rollouts = [RolloutEntry.model_validate(one, strict=False) for one in saved["rollouts"]]
            group = GroupEntry.model_validate(saved["group"], strict=False) if saved["group"] else None
            self.add(name, [RolloutReport(**one) for one in saved["reports"]], (group, rollouts) if group else None)
