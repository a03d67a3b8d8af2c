"""A run as a log of Inspect: one sample for each answer, its conversation, its score. Import needs the extra `eval`."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inspect_ai.log import (  # type: ignore[import-not-found,unused-ignore]
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalPlan,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, ModelOutput, ModelUsage  # type: ignore[import-not-found,unused-ignore]
from inspect_ai.scorer import Score  # type: ignore[import-not-found,unused-ignore]
from inspect_ai.tool import ToolCall  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.cases import extracted
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_records.evaluations.logs import AnswerRecord
from rubricem_records.evaluations.scores import Scores
from rubricem_records.files.journal import Journal

SCORER = "rubricem"


def write_inspect_log(path: Path, loaded: Loaded, *, scores: Scores, answers: Journal[AnswerRecord]) -> None:
    """One file; `.eval` or `.json` by its ending. Gold answers stay out of it: benchmark text must not leak further."""
    samples = [_sample(loaded, scores, record=record) for record in answers.records if record.is_final]
    judged = scores.headline
    metrics = {name: EvalMetric(name=name, value=value) for name, value in judged.metrics.items() if value is not None}
    score = EvalScore(name=judged.headline, scorer=SCORER, metrics=metrics, params={"mode": scores.manifest.label})
    log = EvalLog(
        status="success" if scores.is_complete else "started",
        eval=_spec(scores, samples),
        plan=EvalPlan(),
        results=EvalResults(total_samples=scores.expected, completed_samples=len(samples), scores=[score]),
        stats=EvalStats(started_at=scores.manifest.created, completed_at=scores.manifest.created),
        samples=samples,
    )
    write_eval_log(log, str(path), format="json" if path.suffix == ".json" else "eval")


def _spec(scores: Scores, samples: list[Any]) -> Any:
    manifest = scores.manifest
    # The viewer tells logs apart by these; the same run gives the same ones.
    name = hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()[:22]
    return EvalSpec(
        eval_id=name,
        run_id=name,
        task_id=name,
        created=manifest.created,
        task=f"rubricem/{manifest.benchmark}-{manifest.mode}",
        dataset=EvalDataset(
            name=manifest.benchmark,
            location=manifest.inputs.path,
            samples=len(manifest.inputs.ids),
            sample_ids=list(dict.fromkeys(sample.id for sample in samples)),
        ),
        model=manifest.agent.policy,
        config=EvalConfig(epochs=manifest.epochs),
        metadata={"mode": manifest.label, "manifest": manifest.model_dump(mode="json", exclude={"inputs"})},
    )


def _sample(loaded: Loaded, scores: Scores, *, record: AnswerRecord) -> Any:
    answer = extracted(loaded, record)
    score = scores.headline.per_example.get(record.id)
    question = loaded.example(record.id).prompt_text
    messages = (
        list(_messages(record.trajectory)) if record.trajectory is not None else [ChatMessageUser(content=question)]
    )
    usage = ModelUsage(
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
        total_tokens=record.usage.tokens,
    )
    metadata = {"found": answer.found, "ending": answer.ending, "mode": scores.manifest.label}
    value = "N" if score is None else score
    return EvalSample(
        id=record.id,
        epoch=record.epoch + 1,
        input=question,
        target="",
        messages=messages,
        output=ModelOutput.from_content(model=scores.manifest.agent.policy, content=answer.text),
        scores={SCORER: Score(value=value, answer=answer.text, metadata=metadata)},
        model_usage={scores.manifest.agent.policy: usage},
        metadata=metadata,
    )


def _messages(trajectory: Trajectory) -> Iterator[Any]:
    """Each policy turn as an assistant message with the call that followed it; a call's result as its answer."""
    answers = [segment.observation for segment in trajectory.segments]
    for number, (segment, answer) in enumerate(zip(trajectory.segments, [*answers[1:], None], strict=True)):
        called = segment.observation and segment.observation.call
        made = answer and answer.call
        if segment.origin is Origin.POLICY:
            arguments = {"query": made.query, **dict(made.parameters)} if made else {}
            calls = [ToolCall(id=f"call-{number + 1}", function=made.name, arguments=arguments)] if made else None
            yield ChatMessageAssistant(content=segment.text, tool_calls=calls)
        elif called:
            yield ChatMessageTool(content=segment.text, tool_call_id=f"call-{number}", function=called.name)
        else:
            yield ChatMessageUser(content=segment.text)
