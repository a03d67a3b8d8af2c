"""The run's own log beside veRL's trackers: the metrics.jsonl and config.json that the local trainer writes as well.

What is to know of a step: means by stage for veRL's trackers, and our own line for metrics.jsonl.

What a run on veRL writes down to be looked at: each group that a step trains on, and what became of the bank.

A group is noted when it is judged, and written when a step has taken it, with the credit that it got: under the
trainer's step, which a step ahead is later than the question's own. Noted groups are kept with the desk.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.files import trim_log
from rubricem_agent.learn.metrics import METRICS_FILE, append_line, read_log
from rubricem_agent.learn.monitor import CollapseError, find_collapse
from rubricem_agent.learn.record import RECORD_FOLDER, GroupEntry, RolloutEntry, RunRecorder, credited
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.reflection.reflector import readable_share
from rubricem_agent.rollout.tokens import NO_STAGE
from rubricem_env.domain.base import STAGES
from trainers.settings import make_out
from trainers.verl_backend.rows import Credentials, RolloutCredit, TrainableReflections
from trainers.verl_backend.settings import VerlSettings


class VerlLog:
    """One run's log, in veRL's folder for checkpoints."""

    def __init__(self, folder: Path, settings: VerlSettings) -> None:
        self._path = folder / METRICS_FILE
        self._settings = settings

    def begin(self, step: int) -> None:
        """Forget what was written after `step`: a resumed run writes it again."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        trim_log(self._path, step)

    def leave_settings(self, config: Any) -> None:
        """Write the settings of this start beside the log.

        Raises:
            ConfigError: the folder cannot be written.
        """
        told = {**shared_settings(config), **self._settings.model_dump(mode="json")}
        make_out(self._path.parent, settings=json.dumps(told, indent=1), key="trainer.default_local_dir")

    def write(self, step: int, told: Mapping[str, Any]) -> None:
        """Write a step down.

        Raises:
            CollapseError: the run is lost; the alarm is written down as well.
        """
        append_line(self._path, {"step": step, **told})
        lost = find_collapse(read_log(self._path.parent).steps, self._settings.watch)
        if lost:
            append_line(self._path, {"step": step, "alarm": lost})
            raise CollapseError(lost)


def shared_settings(config: Any) -> dict[str, Any]:
    """What veRL has keys of its own for, under the names that the local trainer has for them."""
    parts = config.actor_rollout_ref
    return {
        "trainer": config.trainer.v1.trainer_mode,
        "policy": parts.model.path,
        "steps": config.trainer.total_training_steps,
        "questions_per_step": config.data.train_batch_size,
        "group_size": parts.rollout.n,
        "learning_rate": parts.actor.optim.lr,
        "temperature": parts.rollout.temperature,
        "kl_loss_coef": parts.actor.kl_loss_coef if parts.actor.use_kl_loss else 0.0,
        "checkpoint_every": config.trainer.save_freq,
    }


def update_told(
    metrics: Mapping[str, Any], stages: Mapping[str, Any] | None, *, prefix: str = ""
) -> dict[str, Any] | None:
    """One of a step's two updates from veRL's metrics; None where it did not take place."""
    norm = metrics.get(f"{prefix}actor/grad_norm")
    if norm is None:
        return None
    found = stages or {}
    return {
        "loss": float(metrics.get(f"{prefix}actor/loss", metrics.get(f"{prefix}actor/pg_loss", 0.0))),
        "grad_norm": float(norm),
        "tokens": sum(int(stage["tokens"]) for stage in found.values()),
        "stages": dict(found),
    }


Floats = npt.NDArray[np.floating]
PREFIX = "rubricem"


class TokenRow(NamedTuple):
    """The trained tokens of one rollout, each array (tokens,)."""

    stage_ids: npt.NDArray[np.integer]
    advantages: Floats
    entropy: Floats
    kl: Floats
    """From the reference, by the loss's own estimator; zeros without a reference."""


def rollout_means(rows: Sequence[Credentials]) -> dict[str, Any]:
    """Of all rollouts of a step, those included that nothing is learnt from."""
    habits = [row.habits for row in rows]
    true = _by_stage([row.marks.true for row in rows if row.marks.true is not None])
    calls = sum(one.calls for one in habits)
    return {
        "encounter": Counter(row.encounter for row in rows).most_common(1)[0][0],
        # Empty outside the almanac, where nobody knows the truth.
        "true": {stage: value for stage, value in true.items() if value is not None},
        "judged": _by_stage([row.marks.judged for row in rows]),
        "habits": {
            "answer_words": float(np.mean([one.answer_words for one in habits])),
            "repeated_calls": sum(one.repeated_calls for one in habits) / max(1, calls),
            "valid": float(np.mean([one.is_valid for one in habits])),
            "policy_tokens": sum(int(np.count_nonzero(row.stage_ids != NO_STAGE)) for row in rows),
        },
        "lost": sum(not row.marks.is_valid for row in rows),
    }


def stage_means(rows: Sequence[TokenRow]) -> dict[str, dict[str, float]]:
    """Tokens, entropy, KL and part in the advantages' weight, for each stage that has tokens."""
    stages = np.concatenate([row.stage_ids for row in rows])
    entropy = np.concatenate([row.entropy for row in rows])
    kl = np.concatenate([row.kl for row in rows])
    weight = np.abs(np.concatenate([row.advantages for row in rows]))
    whole = float(weight[stages != NO_STAGE].sum())
    found = {}
    for stage in STAGES:
        here = stages == stage.position
        if here.any():
            share = float(weight[here].sum()) / whole if whole > 0 else 0.0
            found[stage.value] = {
                "tokens": int(here.sum()),
                "entropy": float(entropy[here].mean()),
                "kl": float(kl[here].mean()),
                "loss_share": share,
            }
    return found


def lesson_means(lessons: TrainableReflections) -> dict[str, Any]:
    """Of the reflections that a step trains on."""
    utilities = [one.score.utility for outcome in lessons.outcomes for one in outcome.scored if one.score is not None]
    return {
        "utility": float(np.mean(utilities)) if utilities else None,
        "readable": readable_share(lessons.outcomes),
        "staleness": list(lessons.staleness),
        "failed_reflections": list(lessons.failures),
        "pending_reflections": lessons.pending,
        "bank": lessons.bank,
    }


def flat_metrics(told: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, float]:
    """The numbers in a nested report, under names such as `rubricem/true/answer`."""
    flat: dict[str, float] = {}
    for name, value in told.items():
        where = f"{prefix}/{name}"
        if isinstance(value, Mapping):
            flat |= flat_metrics(value, where)
        elif isinstance(value, list):
            numbers = [one for one in value if isinstance(one, int | float)]
            flat |= {f"{where}/count": float(len(value))} | (
                {f"{where}/mean": float(np.mean(numbers))} if numbers else {}
            )
        elif isinstance(value, int | float):
            flat[where] = float(value)
    return flat


def _by_stage(rows: Sequence[Sequence[float | None]]) -> dict[str, float | None]:
    """Means of the numbers there are; None for a stage without any."""
    means: dict[str, float | None] = {}
    for stage in STAGES:
        given = [value for row in rows if (value := row[stage.position]) is not None]
        means[stage.value] = round(float(np.mean(given)), 4) if given else None
    return means


SWITCH = "rubricem.record=false"
"""How a run is told to keep none."""


class NotedGroup(NamedTuple):
    """A judged group that no step has taken yet; its entries have no credit, and the question's own step."""

    group: GroupEntry
    rollouts: tuple[RolloutEntry, ...]


class DeskRecord:
    """The record of one run, in a folder of that run's."""

    def __init__(self, run: Path, bank: RubricBank) -> None:
        self._recorder = RunRecorder(run / RECORD_FOLDER, switch=SWITCH)
        self._bank = bank
        self._noted: dict[str, NotedGroup] = {}
        self._step = 0
        self._places = 0
        """Groups of the step that have been written."""

    def begin(self, step: int, tokenizer: PolicyTokenizer) -> None:
        """Go on with the record after `step`, the last one that is not done again.

        Raises:
            UsageError: the folder cannot be written.
        """
        self._recorder.begin(step, embedder=self._bank.embedder_name)
        self._recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])

    def note(self, name: str, group: GroupEntry, rollouts: Sequence[RolloutEntry]) -> None:
        """Keep a judged group until a step takes it."""
        self._noted[name] = NotedGroup(group, tuple(rollouts))

    def write(self, step: int, credits_: Sequence[RolloutCredit]) -> None:
        """Write the groups that a step has taken, in the order in which they are named, and the bank's changes.

        A group that was noted by nobody, such as one from before the record was switched on, is left out.

        Raises:
            UsageError: the disk refuses.
        """
        if step != self._step:
            self._step, self._places = step, 0
        taken: dict[str, dict[int, RolloutCredit]] = {}
        for credit in credits_:
            taken.setdefault(credit.group, {})[credit.place] = credit
        entries = []
        for name, of_group in taken.items():
            noted = self._noted.pop(name, None)
            if noted is not None:
                entries.append(self._placed(noted, of_group))
        self._recorder.record_step(entries)
        self._recorder.record_lessons(self._bank.changed_since(self._recorder.bank_revision), step=step)

    def state_dict(self) -> dict[str, Any]:
        """The noted groups, as JSON."""
        return {
            name: [noted.group.model_dump(mode="json"), [one.model_dump(mode="json") for one in noted.rollouts]]
            for name, noted in self._noted.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._noted = {
            name: NotedGroup(
                GroupEntry.model_validate(group, strict=False),
                tuple(RolloutEntry.model_validate(one, strict=False) for one in rollouts),
            )
            for name, (group, rollouts) in state.items()
        }

    def _placed(
        self, noted: NotedGroup, credits_: Mapping[int, RolloutCredit]
    ) -> tuple[GroupEntry, tuple[RolloutEntry, ...]]:
        """The entries in their place among the groups of the step; a rollout that the step has not seen has no credit."""
        place = {"step": self._step, "place": self._places}
        self._places += 1
        rollouts = (
            credited(one, returns=own.returns, advantages=own.advantages, trained=own.trained)
            if (own := credits_.get(one.attempt)) is not None
            else one
            for one in noted.rollouts
        )
        return noted.group.model_copy(update=place), tuple(one.model_copy(update=place) for one in rollouts)
