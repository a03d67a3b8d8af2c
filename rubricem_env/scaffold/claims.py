"""What a trajectory's file claims of its tool calls, compared with the calls that the policy wrote."""

from collections.abc import Iterator

from rubricem_env.domain.trajectory import Origin, Segment, ToolCall
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.snippets import held_ids
from rubricem_env.scaffold.untrusted import is_inert


def answered_calls(parsed: ParsedTrajectory) -> Iterator[tuple[Segment, ToolCall | None]]:
    """Each tool segment with the call that the policy wrote in the turn before it; None where it wrote none."""
    turns = iter(parsed.turns)
    written = consumed = 0
    for segment in parsed.trajectory.segments:
        if segment.origin is Origin.POLICY:
            written += len(segment.text)
        elif segment.origin is Origin.TOOL:
            call = None
            while consumed < written and (turn := next(turns, None)) is not None:
                consumed += len(turn.text)
                call = turn.call
            yield segment, call


def is_same_query(first: ToolCall, second: ToolCall) -> bool:
    """Whether two calls have one query; a repaired call has another name or other parameters."""
    return first.identity[1] == second.identity[1]


def unfounded_claims(parsed: ParsedTrajectory) -> tuple[str, ...]:
    """What a file claims of its observations and its own texts contradict, a sentence each.

    Whether a tool has said what stands in a text cannot be known without another search.
    """
    claims = []
    for number, (segment, call) in enumerate(answered_calls(parsed), 1):
        seen = segment.observation
        if seen is None or seen.status is None:
            continue
        held = set(held_ids(segment.text, seen.snippet_ids))
        if missing := [snippet_id for snippet_id in seen.snippet_ids if snippet_id not in held]:
            claims.append(
                f"observation {number} claims the snippets {', '.join(missing)}, which its text does not hold."
            )
        if seen.call is not None and (call is None or not is_same_query(seen.call, call)):
            claims.append(
                f"observation {number} claims a call that the policy did not write: {seen.call.query[:80]!r}."
            )
        if not is_inert(segment.text, parsed.scaffold):
            claims.append(f"observation {number} holds tags that a tool's text cannot hold.")
    return tuple(claims)
