"""ATIF, Harbor's format of agent trajectories: a recorded attempt as one JSON document, written and read back.

A prompt is a step of the user; a turn of the policy is a step of the agent, with the tool call that followed it and, as
observation, what tools then showed. What ATIF has no field for stands in `extra` under "rubricem": of the document the
record without the texts, of a step its stages and the citations of the answer, of a result the status and the ids of
its snippets. So an attempt comes back as it was. A document from another agent is read by `foreign_atif`.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue

from rubricem_env import __version__
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import Origin, Segment
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.rollouts.recorded_attempt import RecordedAttempt

ATIF_VERSION = "ATIF-v1.8"
"""The version that is written; every version 1 is read."""

OWN = "rubricem"
"""Our key in every `extra`."""

Extra: TypeAlias = dict[str, JsonValue]


class _AtifModel(BaseModel):
    """A part of a document. Fields that we do not need are ignored."""

    model_config = ConfigDict(frozen=True)


class AtifPart(_AtifModel):
    """A piece of a message; what is no text has a source instead."""

    type: str
    text: Text | None = None


AtifText: TypeAlias = Text | tuple[AtifPart, ...]


class AtifToolCall(_AtifModel):
    """A call of a tool."""

    tool_call_id: Text
    function_name: Text
    arguments: dict[str, JsonValue]


class AtifResult(_AtifModel):
    """What a call showed, or a notice of the environment."""

    source_call_id: Text | None = None
    content: AtifText | None = None
    extra: Extra | None = None


class AtifObservation(_AtifModel):
    """What followed a step."""

    results: tuple[AtifResult, ...]


class AtifMetrics(_AtifModel):
    """The tokens of one step."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class AtifStep(_AtifModel):
    """One prompt, or one turn of the agent."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: AtifText
    reasoning_content: Text | None = None
    tool_calls: tuple[AtifToolCall, ...] | None = None
    observation: AtifObservation | None = None
    metrics: AtifMetrics | None = None
    extra: Extra | None = None

    @property
    def results(self) -> tuple[AtifResult, ...]:
        return self.observation.results if self.observation is not None else ()


class AtifAgent(_AtifModel):
    """Who acted."""

    name: Text
    version: Text
    model_name: Text | None = None


class AtifFinalMetrics(_AtifModel):
    """The tokens and dollars of the whole attempt."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None
    extra: Extra | None = None


class AtifTrajectory(_AtifModel):
    """One document."""

    schema_version: Text
    session_id: Text | None = None
    trajectory_id: Text | None = None
    agent: AtifAgent
    steps: tuple[AtifStep, ...]
    final_metrics: AtifFinalMetrics | None = None
    continued_trajectory_ref: Text | None = None
    extra: Extra | None = None


def to_atif(recorded: RecordedAttempt, *, session: str = "") -> AtifTrajectory:
    """The document of an attempt; `session` names its run."""
    rollout = recorded.entry.rollout
    usage = rollout.usage
    steps = tuple(_steps(rollout.parsed))
    own = recorded.model_dump(mode="json")
    del own["entry"]["rollout"]["trajectory"]["segments"]
    judgement = recorded.entry.judged.judgement
    scores: Extra = {stage: judgement.score(stage) for stage in judgement.stages}
    dollars = recorded.answer.dollars if recorded.answer is not None else None
    return AtifTrajectory(
        schema_version=ATIF_VERSION,
        session_id=session or None,
        trajectory_id=recorded.name,
        agent=AtifAgent(name="rubricem", version=__version__, model_name=rollout.policy or None),
        steps=steps,
        final_metrics=AtifFinalMetrics(
            total_prompt_tokens=usage.input_tokens if usage.calls else None,
            total_completion_tokens=usage.output_tokens if usage.calls else None,
            total_cached_tokens=usage.cached_tokens if usage.calls else None,
            total_cost_usd=dollars,
            total_steps=len(steps),
            extra={OWN: {"scores": scores}},
        ),
        extra={OWN: own},
    )


def dump_atif(document: AtifTrajectory) -> str:
    """The document as JSON, in ASCII."""
    content = document.model_dump(mode="json", exclude_none=True)
    return json.dumps(content, indent=1, allow_nan=False)


def own_attempt(document: AtifTrajectory) -> RecordedAttempt | None:
    """The attempt that `to_atif` made the document of; None where another program did.

    Raises:
        ValidationError: our part of the document is damaged.
    """
    own = (document.extra or {}).get(OWN)
    if _path(own, "entry") is None:
        return None
    segments = [segment.model_dump(mode="json") for step in document.steps for segment in _segments(step)]
    entry = {**_object(own, "entry")}
    trajectory = {**_object(own, "entry", "rollout", "trajectory"), "segments": segments}
    rollout = {**_object(own, "entry", "rollout"), "trajectory": trajectory}
    whole = {**_object(own), "entry": {**entry, "rollout": rollout}}
    # As JSON, in which the strict types of scores are read as they were written.
    return RecordedAttempt.model_validate_json(json.dumps(whole))


def plain_text(text: AtifText | None) -> str:
    """The text of a message; in place of an image or a sound its type in brackets."""
    if text is None or isinstance(text, str):
        return text or ""
    return "\n".join(part.text if part.text is not None else f"[{part.type}]" for part in text)


def _steps(parsed: ParsedTrajectory) -> Iterator[AtifStep]:
    """Tools' segments belong to the step before them; those before any turn to a step of the system."""
    groups: list[list[Segment]] = []
    for segment in parsed.trajectory.segments:
        if segment.origin is Origin.TOOL and groups and groups[-1][0].origin is not Origin.PROMPT:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    lengths = [len(group[0].text) if group[0].origin is Origin.POLICY else 0 for group in groups]
    ends = list(accumulate(lengths))
    for number, (group, end, length) in enumerate(zip(groups, ends, lengths, strict=True), start=1):
        yield _step(number, group, _stage_extra(parsed, end - length, end))
    if not groups:
        yield AtifStep(step_id=1, source="system", message="")


def _step(number: int, group: Sequence[Segment], stages: Extra) -> AtifStep:
    first = group[0]
    if first.origin is Origin.PROMPT:
        return AtifStep(step_id=number, source="user", message=first.text, extra=_segment_extra(first))
    is_turn = first.origin is Origin.POLICY
    shown = group[1:] if is_turn else group
    calls: list[AtifToolCall] = []
    results: list[AtifResult] = []
    for segment in shown:
        call = segment.observation.call if segment.observation is not None else None
        call_id = None
        if call is not None and is_turn:
            call_id = f"call_{number}_{len(calls) + 1}"
            arguments: dict[str, JsonValue] = {**dict(call.parameters), "query": call.query}
            calls.append(AtifToolCall(tool_call_id=call_id, function_name=call.name, arguments=arguments))
        results.append(AtifResult(source_call_id=call_id, content=segment.text, extra=_segment_extra(segment)))
    return AtifStep(
        step_id=number,
        source="agent" if is_turn else "system",
        message=first.text if is_turn else "",
        reasoning_content=first.thought or None if is_turn else None,
        tool_calls=tuple(calls) or None,
        observation=AtifObservation(results=tuple(results)) if results else None,
        extra=_segment_extra(first, stages) if is_turn else None,
    )


def _stage_extra(parsed: ParsedTrajectory, start: int, end: int) -> Extra:
    """The stages of a piece of the policy's text, and what its answer cites."""
    overlaps = {stage: span for stage, span in parsed.spans.items() if span.start < end and start < span.end}
    extra: Extra = {"stages": [*overlaps]} if overlaps else {}
    if parsed.stages[-1] in overlaps and (parsed.citations.known or parsed.citations.unknown):
        extra["citations"] = {"known": [*parsed.citations.known], "unknown": [*parsed.citations.unknown]}
    return extra


def _segment_extra(segment: Segment, more: Extra | None = None) -> Extra | None:
    """What a segment has beside its author, its text and its thought."""
    own = segment.model_dump(mode="json", exclude={"origin", "text"}, exclude_defaults=True)
    if segment.origin is Origin.POLICY:
        own.pop("thought", None)
    own |= more or {}
    return {OWN: own} if own else None


def _segments(step: AtifStep) -> Iterator[Segment]:
    """The segments of a step that we wrote."""
    if step.source != "system":
        is_turn = step.source == "agent"
        thought = {"thought": step.reasoning_content} if is_turn and step.reasoning_content else {}
        yield _segment(Origin.POLICY if is_turn else Origin.PROMPT, step.message, {**_own(step.extra), **thought})
    for result in step.results:
        yield _segment(Origin.TOOL, result.content, _own(result.extra))


def _segment(origin: Origin, text: AtifText | None, own: Extra) -> Segment:
    fields = {name: value for name, value in own.items() if name in Segment.model_fields}
    return Segment.model_validate({**fields, "origin": origin, "text": plain_text(text)}, strict=False)


def _own(extra: Extra | None) -> Extra:
    return _object((extra or {}).get(OWN))


def _path(value: JsonValue, *names: str) -> JsonValue:
    """The value at the end of a path of names; None where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _object(value: JsonValue, *names: str) -> dict[str, JsonValue]:
    """The object at the end of a path of names; empty where there is none."""
    found = _path(value, *names)
    return found if isinstance(found, dict) else {}
