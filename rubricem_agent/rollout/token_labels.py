"""Labels the tokens of a conversation with their stages.

Stages come from the character spans of `find_boundaries`, the same that the judge reads: a token that straddles
a boundary belongs to the stage in which it begins. A token that ends the policy's turn belongs with the text before it.
"""

from collections.abc import Sequence
from itertools import accumulate

from rubricem_agent.policy.base import TokenSegment
from rubricem_env.domain.base import StageSpans
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.turn import Turn
from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens
from rubricem_records.rollouts.stage_lookup import stage_lookup


def label_tokens(
    pieces: Sequence[TokenSegment], turns: Sequence[Turn], *, spans: StageSpans, scaffold: Scaffold = DEFAULT
) -> RolloutTokens:
    """The conversation's tokens with their stages; `turns` are those of the episode, one for each policy piece.

    A window in which the policy wrote nothing is left out: its episode ended there.
    """
    stage_at = stage_lookup(spans, scaffold.working)
    position = {stage: place for place, stage in enumerate(scaffold.names)}
    ids: list[int] = []
    stage_ids: list[int] = []
    logprobs: list[float] = []
    window_starts = [0]
    offsets = iter(_turn_offsets(pieces, turns))
    for piece in _drawn_windows(pieces):
        if piece.begins_window:
            window_starts.append(len(ids))
        ids += piece.ids
        if not piece.is_policy:
            stage_ids += [NO_STAGE] * len(piece.ids)
            logprobs += [0.0] * len(piece.ids)
            continue
        offset, end = next(offsets)
        stage_ids += [position[stage_at(min(offset + start, max(end - 1, 0)))] for start in piece.starts]
        logprobs += piece.logprobs
    prompt_length = len(pieces[0].ids) if pieces else 0
    return RolloutTokens(
        ids=tuple(ids),
        stage_ids=tuple(stage_ids),
        logprobs=tuple(logprobs),
        prompt_length=prompt_length,
        window_starts=tuple(window_starts),
    )


def _drawn_windows(pieces: Sequence[TokenSegment]) -> Sequence[TokenSegment]:
    """The pieces up to the last window, or up to the one before it where nothing was drawn in the last."""
    begun = max((index for index, piece in enumerate(pieces) if piece.begins_window), default=0)
    return pieces if not begun or any(piece.is_policy for piece in pieces[begun:]) else pieces[:begun]


def _turn_offsets(pieces: Sequence[TokenSegment], turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Where the text of each policy piece begins and ends in the policy's whole text."""
    written = sum(piece.is_policy for piece in pieces)
    if written != len(turns):
        raise ValueError(f"{written} policy pieces do not fit the {len(turns)} turns of the episode")
    ends = list(accumulate(len(turn.text) for turn in turns))
    return list(zip([0, *ends], ends, strict=False))
