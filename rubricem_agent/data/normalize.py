"""Brings an accepted trace into the student's language: <think> for the teacher's scratchpad, canonical tags and tools."""

from collections.abc import Iterator, Sequence

from rubricem_env.domain.tool import ToolCall
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.grammar import CALL_TOOL, THINK
from rubricem_env.scaffold.lexer import Token, find_tags
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.tools.catalogue import GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC
from rubricem_env.tools.repair import repair_call
from rubricem_env.tools.spec import ToolSpec

QUOTE = '"'
TOOL_SPECS = (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC)


def normalize(trajectory: Trajectory, specs: Sequence[ToolSpec] = TOOL_SPECS) -> Trajectory:
    """The same trace in canonical form; a canonical one is unchanged. What tools have shown is never touched.

    Only for traces whose thoughts are balanced: see `unbalanced_thoughts`.
    """
    segments = (
        segment.model_copy(update={"text": _normalize_turn(segment.text, specs), "cut": ""})
        if segment.origin is Origin.POLICY
        else segment
        for segment in trajectory.segments
    )
    return trajectory.model_copy(update={"segments": tuple(segments)})


def unbalanced_thoughts(trajectory: Trajectory) -> Iterator[Segment]:
    """The turns in which a thought does not close before the next opens, or closes without having opened (choice A16)."""
    for segment in trajectory.segments:
        if segment.origin is Origin.POLICY and not _is_balanced(segment.text):
            yield segment


def _is_balanced(text: str) -> bool:
    is_open = False
    for token in find_tags(text):
        if token.name == THINK and not token.empty:
            if token.closing != is_open:
                return False
            is_open = not is_open
    return not is_open


def _normalize_turn(text: str, specs: Sequence[ToolSpec]) -> str:
    turn = parse_turn(text, 1)
    block = turn.last(CALL_TOOL)
    if turn.call is None or block is None:
        return _rename_tags(text)
    return _rename_tags(text[: block.start]) + call_text(turn.call, specs)


def call_text(call: ToolCall, specs: Sequence[ToolSpec]) -> str:
    """The call in its canonical form; one of an unknown tool keeps its name."""
    repaired = repair_call(call, specs)
    made = repaired if isinstance(repaired, ToolCall) else call
    spelt = {parameter.key: parameter.name for spec in specs if spec.name == made.name for parameter in spec.parameters}
    attributes = "".join(f' {spelt.get(name, name)}="{value.replace(QUOTE, "")}"' for name, value in made.parameters)
    return f'<{CALL_TOOL} name="{made.name}"{attributes}>{made.query}</{CALL_TOOL}>'


def _rename_tags(text: str) -> str:
    """Every tag by its canonical name in lower case; inside a thought only the thought's own tags count."""
    pieces: list[str] = []
    done, in_thought = 0, False
    for token in find_tags(text):
        if token.name == THINK:
            in_thought = not token.closing and not token.empty
        elif in_thought:
            continue
        pieces += [text[done : token.start], _canonical(token)]
        done = token.end
    return "".join(pieces) + text[done:]


def _canonical(token: Token) -> str:
    return f"<{'/' if token.closing else ''}{token.name}{token.attributes}>"
