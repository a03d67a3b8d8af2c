"""Shows where the policy's view of an attempt was folded, and what it read from there on."""

from itertools import islice

from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.view import View, folded_views_of
from rubricem_env.tools.render import estimate_tokens
from rubricem_viewer.api.trajectories import FoldView, SeenTurn

MAX_FOLDS = 200
MAX_SEEN = 20_000
"""The most characters of a turn, and of what was read after it."""
ROOM = 2_000_000
"""The most characters of all views together; later ones have none."""


def fold_views(trajectory: Trajectory) -> tuple[FoldView, ...]:
    """The folds of a trajectory, from its record alone. Tokens are estimated."""
    views = []
    room = ROOM
    for fold, before, after in islice(folded_views_of(trajectory), MAX_FOLDS):
        seen = _seen(after)
        room -= sum(len(turn.text) + len(turn.observation) for turn in seen)
        views.append(
            FoldView(
                turn=fold.turn,
                folded=fold.turn - fold.whole,
                before=estimate_tokens(before.text),
                after=estimate_tokens(after.text),
                seen=seen if room >= 0 else (),
                is_shown=room >= 0,
            )
        )
    return tuple(views)


def _seen(view: View) -> tuple[SeenTurn, ...]:
    return tuple(
        SeenTurn(turn=turn.number, text=turn.text[:MAX_SEEN], observation=turn.observation[:MAX_SEEN])
        for turn in view.turns
        if not turn.is_whole
    )
