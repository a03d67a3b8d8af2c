"""Shows what a trajectory says by itself, without a judge."""

from collections.abc import Sequence
from itertools import accumulate

from rubricem_env.scaffold.claims import unfounded_claims
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.violation import strict_codes
from rubricem_viewer.api.trajectories import Passage, TrajectoryRow, TrajectoryView, ViolationView
from rubricem_viewer.element_segments import cut_trajectory
from rubricem_viewer.elements import make_elements
from rubricem_viewer.fold_views import fold_views
from rubricem_viewer.quotations import PolicyPiece, locate, select_policy_pieces

MAX_VIOLATIONS = 500

MAX_QUESTION = 20_000


def view_trajectory(parsed: ParsedTrajectory, row: TrajectoryRow, *, from_element: int = 0) -> TrajectoryView:
    """What a trajectory says by itself, without a judge."""
    pieces = cut_trajectory(parsed)
    cited = {*parsed.citations.known, *parsed.citations.unknown}
    return TrajectoryView(
        row=row,
        elements=make_elements(pieces, from_element, cited=cited, shown=parsed.shown),
        elements_total=len(pieces),
        violations=_violations(parsed, select_policy_pieces(pieces)),
        claims=unfounded_claims(parsed)[:MAX_VIOLATIONS],
        unknown_citations=parsed.citations.unknown[:MAX_VIOLATIONS],
        turns=len(parsed.turns),
        folds=() if from_element else fold_views(parsed.trajectory),
    )


def _begin(policy_pieces: Sequence[PolicyPiece], start: int) -> Passage | None:
    """Where something begins: in an element, or at the start of the next one."""
    following = next((piece for piece in policy_pieces if start < piece.element.end), None)
    return locate([following], max(start, following.element.start), start) if following else None


def _violations(parsed: ParsedTrajectory, policy_pieces: Sequence[PolicyPiece]) -> tuple[ViolationView, ...]:
    strict = strict_codes(parsed.scaffold)
    starts = [0, *accumulate(len(turn.text) for turn in parsed.turns)]
    return tuple(
        ViolationView(
            code=violation.code.value,
            turn=violation.turn,
            message=violation.message,
            strict=violation.code in strict,
            passage=_begin(policy_pieces, starts[violation.turn - 1] + violation.start)
            if 0 < violation.turn <= len(starts)
            else None,
        )
        for violation in parsed.violations[:MAX_VIOLATIONS]
    )
