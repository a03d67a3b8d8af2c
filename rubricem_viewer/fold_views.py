"""Shows where the policy's view of an attempt was folded, and what it read from there on."""

from collections.abc import Iterator
from itertools import zip_longest

from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.env.view import View, views_of
from rubricem_env.tools.render import estimate_tokens
from rubricem_viewer.api.trajectories import FoldView, SeenTurn

MAX_FOLDS = 200
MAX_SEEN = 20_000
"""The most characters of a turn, and of what was read after it."""
ROOM = 2_000_000
"""The most characters of all views together; later ones have none."""


def fold_views(trajectory: Trajectory) -> tuple[FoldView, ...]:
    """The folds of a trajectory after which the policy read, from its record alone. Tokens are estimated."""
    if not trajectory.folds:
        return ()
    views = list(views_of(trajectory))
    turns = [*_recorded_turns(trajectory)]
    shown = []
    room = ROOM
    for fold in trajectory.folds[:MAX_FOLDS]:
        if fold.turn >= len(views):
            continue
        seen = _seen(views[fold.turn])
        room -= sum(len(turn.text) + len(turn.observation) for turn in seen)
        shown.append(
            FoldView(
                turn=fold.turn,
                folded=fold.turn - fold.whole,
                before=estimate_tokens(views[fold.turn - 1].text + turns[fold.turn - 1]),
                after=estimate_tokens(views[fold.turn].text),
                seen=seen if room >= 0 else (),
                is_shown=room >= 0,
            )
        )
    return tuple(shown)


def _recorded_turns(trajectory: Trajectory) -> Iterator[str]:
    """What each turn added to the view: its text, and what was read after it."""
    for segment, after in zip_longest(trajectory.segments, trajectory.segments[1:]):
        if segment.origin is Origin.POLICY:
            yield segment.text + (after.text if after is not None and after.origin is Origin.TOOL else "")


def _seen(view: View) -> tuple[SeenTurn, ...]:
    return tuple(
        SeenTurn(turn=turn.number, text=turn.text[:MAX_SEEN], observation=turn.observation[:MAX_SEEN])
        for turn in view.turns
        if not turn.is_whole
    )
