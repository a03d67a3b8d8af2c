"""Reads the ATIF document of another agent as a plain trajectory.

Its tool calls become calls of the scaffold and its last message becomes the answer, because both are read from the
policy's text. Nothing else is added: it wrote no plan and no review, so it has none.
"""

import json
import re
from collections.abc import Iterator

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import Ending, Origin, Segment, Trajectory
from rubricem_env.llm.thoughts import without_thoughts
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.untrusted import neutralize
from rubricem_records.rollouts.atif import AtifResult, AtifStep, AtifToolCall, AtifTrajectory, plain_text
from rubricem_records.rollouts.recorded_attempt import RecordedAttempt, unjudged
from rubricem_records.rollouts.rollouts import Rollout, RolloutTrajectory

_NOT_IN_A_NAME = re.compile(r"[^\w.-]+", re.ASCII)


def foreign_attempt(document: AtifTrajectory, where: str, number: int) -> RecordedAttempt:
    """The attempt of another agent, without judgement; its number is given.

    Raises:
        FileFormatError: it has no question or no turn of an agent, or goes on in another file.
    """
    turns = [step for step in document.steps if step.source == "agent"]
    question = next((plain_text(step.message) for step in document.steps if step.source == "user"), "")
    if not question.strip():
        raise FileFormatError(f"{where} has no step of a user with text, so its question is missing. Add that step.")
    if not turns:
        raise FileFormatError(f"{where} has no step of an agent, so there is no attempt in it.")
    if document.continued_trajectory_ref is not None:
        rest = document.continued_trajectory_ref[:200]
        raise FileFormatError(f"{where} goes on in {rest!r}, so its end is missing. Put the steps of both in one file.")
    segments = tuple(
        segment
        for step in document.steps
        for segment in (_turn(step, is_last=step is turns[-1]) if step.source == "agent" else _prompt(step))
    )
    written = [segment.text for segment in segments if segment.origin is Origin.POLICY]
    has_answered = bool(written) and parse_turn(written[-1]).answer is not None
    trajectory = Trajectory(question=question, segments=segments, ending=Ending.ANSWERED if has_answered else None)
    policy = document.agent.model_name or document.agent.name
    rollout = Rollout(trajectory=RolloutTrajectory(trajectory), policy=policy, usage=_usage(document, len(turns)))
    return RecordedAttempt(entry=unjudged(rollout, attempt=number))


def _prompt(step: AtifStep) -> Iterator[Segment]:
    yield Segment(origin=Origin.PROMPT, text=plain_text(step.message))
    for result in step.results:
        yield _shown(result)


def _turn(step: AtifStep, *, is_last: bool) -> Iterator[Segment]:
    """The segments of a turn: a turn with several calls is one for each call, as the scaffold has it."""
    text = plain_text(step.message)
    thought = step.reasoning_content or ""
    turn = parse_turn(text)
    calls = step.tool_calls or ()
    if not calls:
        is_answer = is_last and not turn.has_action and turn.first(ANSWER) is None and bool(text.strip())
        yield Segment(origin=Origin.POLICY, text=_answer(text) if is_answer else text, thought=thought)
    waiting: dict[str, list[AtifResult]] = {call.tool_call_id: [] for call in calls}
    others: list[AtifResult] = []
    for result in step.results:
        waiting.get(result.source_call_id or "", others).append(result)
    for number, call in enumerate(calls):
        is_first = number == 0
        # An agent that writes the scaffold itself has its call in its text.
        written = text if is_first and turn.has_action else _call(call, before=text if is_first else "")
        yield Segment(origin=Origin.POLICY, text=written, thought=thought if is_first else "")
        # Removed, so that a second call of the same id does not show the results again.
        for result in waiting.pop(call.tool_call_id, []):
            yield _shown(result)
    for result in others:
        yield _shown(result)


def _shown(result: AtifResult) -> Segment:
    return Segment(origin=Origin.TOOL, text=plain_text(result.content))


def _call(call: AtifToolCall, *, before: str) -> str:
    """A call as the scaffold writes it, after the text of its turn.

    Tags in the text that would swallow the call, such as a thought that never closes, are made inert.
    """
    query = call.arguments.get("query")
    if len(call.arguments) != 1 or not isinstance(query, str) or not query.strip():
        query = json.dumps(call.arguments, ensure_ascii=False)
    name = _NOT_IN_A_NAME.sub("_", call.function_name) or "tool"
    written = f'<{CALL_TOOL} name="{name}">{neutralize(query)}</{CALL_TOOL}>'
    return before + written if parse_turn(before + written).call is not None else neutralize(before) + written


def _answer(text: str) -> str:
    """The last message as an answer, after the thoughts that a server left in it."""
    answer = without_thoughts(text)
    thoughts = text.removesuffix(answer)
    written = f"{thoughts}<{ANSWER}>{answer}</{ANSWER}>"
    turn = parse_turn(written)
    if turn.answer is not None and turn.answer.end == len(written):
        return written
    return f"<{ANSWER}>{neutralize(text)}</{ANSWER}>"


def _usage(document: AtifTrajectory, turns: int) -> Usage:
    """The tokens that the document names as a whole, or else those of its steps."""
    final = document.final_metrics
    if final is not None and final.total_prompt_tokens is not None and final.total_completion_tokens is not None:
        return Usage(
            calls=turns,
            input_tokens=final.total_prompt_tokens,
            cached_tokens=final.total_cached_tokens or 0,
            output_tokens=final.total_completion_tokens,
        )
    metrics = [step.metrics for step in document.steps if step.metrics is not None]
    return Usage(
        calls=turns,
        input_tokens=sum(one.prompt_tokens or 0 for one in metrics),
        cached_tokens=sum(one.cached_tokens or 0 for one in metrics),
        output_tokens=sum(one.completion_tokens or 0 for one in metrics),
    )
