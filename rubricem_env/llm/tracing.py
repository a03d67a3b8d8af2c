"""Records episodes as OpenTelemetry traces: turns, tool calls and judge calls are spans.

The GenAI conventions 1.41 name them.

Nothing is exported unless RUBRICEM_OTLP_ENDPOINT names a collector (OTLP over HTTP; the standard OTEL_EXPORTER_OTLP_*
variables set its headers), and no text unless OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from rubricem_env import __version__
from rubricem_env.domain.errors import MissingExtraError
from rubricem_env.domain.judgement import Rubric, RubricScore
from rubricem_env.domain.trajectory import ToolCall, ToolResult, Trajectory
from rubricem_env.llm.usage import Usage

ENDPOINT = "RUBRICEM_OTLP_ENDPOINT"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_MOST_EPISODES = 10_000
_NAMED = {"chat": "gen_ai.request.model", "execute_tool": "gen_ai.tool.name"}
EpisodeKey = tuple[str, int | None]
"""The prompt of an attempt, and its seed."""
_export = SimpleNamespace(tracer=None, api=None, has_texts=False, episodes={})
"""Where this process sends its traces, and the episodes that a judge's calls may still belong to, by EpisodeKey."""


def export_traces(environ: Mapping[str, str]) -> Any:
    """Send the traces of this process to the collector of the environment, or nowhere.

    Returns OpenTelemetry's provider.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
    """
    endpoint = environ.get(ENDPOINT, "").strip().rstrip("/")
    _export.tracer = None
    if not endpoint:
        return None
    try:
        exporter: Any = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        sdk: Any = import_module("opentelemetry.sdk.trace.export")
    except ModuleNotFoundError as cause:
        raise MissingExtraError("opentelemetry-exporter-otlp-proto-http", "track", ENDPOINT) from cause
    resource = import_module("opentelemetry.sdk.resources").Resource.create({"service.name": "rubricem"})
    # At the end of the process the provider sends what is left.
    provider = import_module("opentelemetry.sdk.trace").TracerProvider(resource=resource)
    provider.add_span_processor(sdk.BatchSpanProcessor(exporter.OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")))
    schema = "https://opentelemetry.io/schemas/1.41.0"
    _export.tracer = provider.get_tracer("rubricem", __version__, schema_url=schema)
    _export.api = import_module("opentelemetry.trace")
    _export.has_texts = environ.get(CONTENT, "").strip().lower() == "true"
    return provider


@contextmanager
def span(operation: str, name: str, *, begins: EpisodeKey | None = None, of: Trajectory | None = None) -> Iterator[Any]:
    """A span within the current one, which `begins` an episode, or is part `of` one that this process has played.

    It is None where nothing is exported. Of a failure only the type is recorded, because its message may quote text.
    """
    if _export.tracer is None:
        yield None
        return
    played = (of.segments[0].text, of.seed) if of is not None and of.segments else None
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "rubricem",
        _NAMED.get(operation, "gen_ai.agent.name"): name,
    }
    kinds = _export.api.SpanKind
    with _export.tracer.start_as_current_span(
        f"{operation} {name}",
        context=_export.episodes.get(played) if played else None,
        kind=kinds.CLIENT if operation == "chat" else kinds.INTERNAL,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        if begins is not None:
            _note(opened, {}, {"gen_ai.input.messages": [_message("user", begins[0])]})
            _export.episodes[begins] = _export.api.set_span_in_context(opened)
            if len(_export.episodes) > _MOST_EPISODES:
                del _export.episodes[next(iter(_export.episodes))]
        try:
            yield opened
        except BaseException as error:
            opened.set_attribute("error.type", type(error).__name__)
            opened.set_status(_export.api.StatusCode.ERROR)
            raise


def note_turn(turn: Any, text: str, usage: Usage) -> None:
    """What a turn cost, and its text."""
    if turn is not None:
        cost = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
        _note(turn, cost, {"gen_ai.output.messages": [{**_message("assistant", text), "finish_reason": "stop"}]})


def note_result(called: Any, call: ToolCall, result: ToolResult) -> None:
    """How a tool call ended; its query and its snippets."""
    if called is not None:
        failed = {"error.type": result.status.value} if result.message else {}
        query = {"query": call.query, **dict(call.parameters)}
        snippets = [snippet.text for snippet in result.snippets]
        _note(called, failed, {"gen_ai.tool.call.arguments": query, "gen_ai.tool.call.result": snippets})


def note_scores(judged: Any, rubrics: Iterable[Rubric], rubric_scores: Mapping[str, RubricScore]) -> None:
    """An event for each rubric that was scored, by its stage and id; its words may quote text."""
    for rubric in rubrics:
        if judged is not None and (rubric_score := rubric_scores.get(rubric.id)) is not None:
            name = f"{rubric.stage} {rubric.id}"
            attributes = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": rubric_score.score}
            judged.add_event("gen_ai.evaluation.result", attributes)


def _note(opened: Any, attributes: Mapping[str, Any], texts: Mapping[str, Any]) -> None:
    """Attributes, and as JSON those with text, where text was asked for."""
    texts_as_json = {name: json.dumps(text) for name, text in texts.items()} if _export.has_texts else {}
    opened.set_attributes({**attributes, **texts_as_json})


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}
