"""What is to know of a step: means by stage for veRL's trackers, and our own line for metrics.jsonl."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.batch import PAD
from rubricem_agent.reflection.outcome import readable_share
from rubricem_env.domain.stage import STAGES
from trainers.verl_backend.desk_types import Lessons
from trainers.verl_backend.episode_row import Credentials

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
            "policy_tokens": sum(int(np.count_nonzero(row.stage_ids != PAD)) for row in rows),
        },
        "lost": sum(not row.marks.is_valid for row in rows),
    }


def stage_means(rows: Sequence[TokenRow]) -> dict[str, dict[str, float]]:
    """Tokens, entropy, KL and part in the advantages' weight, for each stage that has tokens."""
    stages = np.concatenate([row.stage_ids for row in rows])
    entropy = np.concatenate([row.entropy for row in rows])
    kl = np.concatenate([row.kl for row in rows])
    weight = np.abs(np.concatenate([row.advantages for row in rows]))
    whole = float(weight[stages != PAD].sum())
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


def lesson_means(lessons: Lessons) -> dict[str, Any]:
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
