"""The paper's credit as token advantages, for the adapters of other trainers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import assign_credit, spread_to_tokens
from rubricem_env.adapters.session import JudgedRows, Played, completion_of, pad_stage_ids
from rubricem_env.domain.judgement import Judgement
from rubricem_env.judge.scoring import group_scores


def stage_advantages(rows: JudgedRows) -> npt.NDArray[np.float32]:
    """The advantage of every token of a judged batch (equation 2), 0 where the policy did not write."""
    groups = np.array(rows.groups)
    scores, valid = np.zeros((len(groups), 4)), np.array(rows.valid)
    for number in np.unique(groups):
        places = np.flatnonzero(groups == number)
        scores[places], judged = group_scores([rows.judgements[place] for place in places])
        valid[places] &= judged
    return spread_to_tokens(assign_credit(scores, groups=groups, valid=valid).advantages, rows.stage_ids)


def group_advantages(attempts: Sequence[Played], judgements: Sequence[Judgement]) -> list[list[float]]:
    """The advantage of every token after the prompt, for the attempts at one question, each of its own length."""
    stage_ids = [completion_of(attempt)[1] for attempt in attempts]
    valid = tuple(attempt.is_valid for attempt in attempts)
    rows = stage_advantages(JudgedRows(tuple(judgements), (0,) * len(attempts), valid, pad_stage_ids(stage_ids)))
    return [row[: len(ids)].tolist() for row, ids in zip(rows, stage_ids, strict=True)]
