"""Shows where the policy's view of an attempt was folded, and what it read from there on."""

from itertools import islice, pairwise

from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.view import View, windows_of
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
    shown = []
    room = ROOM
    windows = islice(pairwise(windows_of(trajectory)), MAX_FOLDS)
    for fold, (last, window) in zip(trajectory.folds, windows, strict=False):
        if not window.turns:
            continue
        seen = _seen(window.view)
        room -= sum(len(turn.text) + len(turn.observation) for turn in seen)
        shown.append(
            FoldView(
                turn=fold.turn,
                folded=fold.turn - fold.whole,
                before=estimate_tokens(last.text),
                after=estimate_tokens(window.view.text),
                seen=seen if room >= 0 else (),
                is_shown=room >= 0,
            )
        )
    return tuple(shown)


def _seen(view: View) -> tuple[SeenTurn, ...]:
    return tuple(
        SeenTurn(turn=turn.number, text=turn.text[:MAX_SEEN], observation=turn.observation[:MAX_SEEN])
        for turn in view.turns
        if not turn.is_whole
    )
