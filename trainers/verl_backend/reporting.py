"""What a run on veRL writes: metrics.jsonl and config.json as in the local trainer, metrics for trackers, the record.

A group is judged before a step trains on it. Its record waits until then, and is written with its credit under the
trainer's step, which is later than the question's own where steps are sampled ahead.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.metrics import METRICS_FILE, append_line, read_log
from rubricem_agent.learn.monitor import WatchSettings, find_collapse
from rubricem_agent.learn.record import RECORD_FOLDER, GroupEntry, RolloutEntry, RunRecorder, credited
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.rollout.tokens import NO_STAGE
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import RubricEMError
from trainers.settings import make_out
from trainers.verl_backend.rows import CreditInputs
from trainers.verl_backend.settings import VerlSettings

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
    warning = find_collapse(read_log(folder).steps, watch)
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
        "stages": dict(by_stage),
    }


def rollout_means(rows: Sequence[CreditInputs]) -> dict[str, Any]:
    """Means over all rollouts of a step, those that are not trained on included."""
    true = _means_by_stage([row.scores.true for row in rows if row.scores.true is not None])
    return {
        "encounter": Counter(row.encounter for row in rows).most_common(1)[0][0],
        # Empty outside the almanac, where the truth is not known.
        "true": {stage: value for stage, value in true.items() if value is not None},
        "judged": _means_by_stage([row.scores.judged for row in rows]),
        "habits": {
            "answer_words": float(np.mean([row.answer_words for row in rows])),
            "repeated_calls": sum(row.repeated_calls for row in rows) / max(1, sum(row.calls for row in rows)),
            "valid": float(np.mean([row.is_strict for row in rows])),
            "policy_tokens": sum(int(np.count_nonzero(row.stage_ids != NO_STAGE)) for row in rows),
        },
        "lost": sum(not row.scores.is_valid for row in rows),
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


class GroupRecord:
    """The record of one run, in a folder of that run, with the judged groups that no step has trained on yet."""

    def __init__(self, run: Path, bank: RubricBank) -> None:
        self._recorder = RunRecorder(run / RECORD_FOLDER, switch=SWITCH)
        self._bank = bank
        self._waiting: dict[str, tuple[GroupEntry, list[RolloutEntry]]] = {}
        """By the group's name; the entries have no credit, and the question's own step."""
        self._step = 0
        self._written = 0
        """Groups of the step that have been written."""

    def begin(self, step: int, tokenizer: PolicyTokenizer) -> None:
        """Continue the record after `step`, the last one that is not repeated.

        Raises:
            UsageError: the folder cannot be written.
        """
        self._recorder.begin(step, embedder=self._bank.embedder_name)
        self._recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])

    def add(self, name: str, group: GroupEntry, rollouts: Sequence[RolloutEntry]) -> None:
        """Keep a judged group until a step trains on it."""
        self._waiting[name] = (group, list(rollouts))

    def write(self, step: int, rollouts: Sequence[tuple[str, int]], credit: Credit) -> None:
        """Write the groups that a step trains on, in the order of their first rollout, and the bank's changes.

        `rollouts` are group and index of each row of the credit. A group that was never added, such as one from before
        the record was switched on, is left out. A rollout that the step has not seen has no credit.

        Raises:
            UsageError: the disk refuses.
        """
        if step != self._step:
            self._step, self._written = step, 0
        rows = {rollout: row for row, rollout in enumerate(rollouts)}
        entries = []
        for name in dict.fromkeys(name for name, _ in rollouts if name in self._waiting):
            group, attempts = self._waiting.pop(name)
            position = {"step": step, "place": self._written}
            self._written += 1
            for index, one in enumerate(attempts):
                row = rows.get((name, one.attempt))
                if row is not None:
                    attempts[index] = credited(
                        one,
                        returns=credit.returns[row].tolist(),
                        advantages=credit.advantages[row].tolist(),
                        trained=bool(credit.trainable[row]),
                    )
            moved = [one.model_copy(update=position) for one in attempts]
            entries.append((group.model_copy(update=position), moved))
        self._recorder.record_step(entries)
        self._recorder.record_lessons(self._bank.contents(since=self._recorder.bank_revision), step=step)

    def state_dict(self) -> dict[str, Any]:
        """The waiting groups, as JSON."""
        return {
            name: [group.model_dump(mode="json"), [one.model_dump(mode="json") for one in rollouts]]
            for name, (group, rollouts) in self._waiting.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._waiting = {
            name: (
                GroupEntry.model_validate(group, strict=False),
                [RolloutEntry.model_validate(one, strict=False) for one in rollouts],
            )
            for name, (group, rollouts) in state.items()
        }
