"""An episode is one trace at an OTLP collector: none is sent without its address, and no text unless asked for."""

import json
from collections import Counter

import pytest

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_agent.wiring.models import build_judge, build_policy
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Query, ToolCall
from rubricem_env.env.step import call_tool
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.llm.tracing import CONTENT, ENDPOINT, export_traces, span
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.base import LocalToolbox

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed: rubricem[track]"
)

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

RUBRIC = Rubric(title="Width", description="60 m", stage=Stage.ANSWER, persistent=True)
QUERY = Query(question="How wide is the river Tall Fox?", rubrics=(RUBRIC,))


class Collector:
    """An OTLP collector that keeps what it is sent."""

    def __init__(self):
        self.bodies = []
        self.paths = set()

    async def __call__(self, scope, receive, send):
        body, more = b"", scope["type"] == "http"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["type"] == "http":
            self.paths.add(scope["path"])
            self.bodies.append(body)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    @property
    def spans(self):
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


async def play(environ):
    """Two attempts at one question, judged; what is left is sent."""
    provider = export_traces(environ)
    policy, _ = build_policy(PolicyConfig(policy="scripted"), environ)
    built = build_judge(JudgeConfig(judge="rules"), environ)
    async with open_tools(ToolsConfig(), environ) as tools:
        prompt = agent_prompt(tools.toolbox.names)

        async def opened(query, attempt):
            return prompt.opening(query), prompt.hash

        (played,) = await run_groups([QUERY], opened, RolloutContext(policy, tools.toolbox), group_size=2)
    group = Group.of(QUERY, [one.trajectory for one in played])
    await StepJudge(built.judge, RubricBuffer()).judge_step([group], step=0)
    if provider is not None:
        provider.shutdown()


@pytest.fixture
def collector():
    app = Collector()
    with serve_loopback(app) as url:
        app.environ = {ENDPOINT: url}
        yield app
    export_traces({})


def attributes(span):
    return {one.key: one.value for one in span.attributes}


async def test_an_episode_is_one_trace_of_turns_tool_calls_and_judge_calls(collector):
    await play(collector.environ)

    assert collector.paths == {"/v1/traces"}
    spans = collector.spans
    roots = [span for span in spans if span.name == "invoke_agent rubricem"]
    assert len(roots) == 2
    for root in roots:
        assert not root.parent_span_id
        parts = [span for span in spans if span.trace_id == root.trace_id and span is not root]
        assert {span.parent_span_id for span in parts} == {root.span_id}
        # The script plans and searches, searches again, and answers: three turns and two calls.
        calls = {"execute_tool google_search": 1, "execute_tool snippet_search": 1, "evaluate rules": 1}
        assert Counter(span.name for span in parts) == {"chat scripted": 3, **calls}
    (event,) = next(span for span in spans if span.name == "evaluate rules").events
    told = {one.key: one.value for one in event.attributes}
    assert event.name == "gen_ai.evaluation.result"
    assert told["gen_ai.evaluation.name"].string_value == f"answer {RUBRIC.id}"


async def test_the_names_are_those_of_the_conventions_and_the_required_ones_are_there(collector):
    await play({**collector.environ, CONTENT: "true"})

    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    used = {key for one in collector.spans for key in attributes(one)}
    used |= {told.key for one in collector.spans for event in one.events for told in event.attributes}
    assert used - known == set()
    for one in collector.spans:
        operation = attributes(one)["gen_ai.operation.name"].string_value
        named = {"chat": "request.model", "execute_tool": "tool.name"}.get(operation, "agent.name")
        assert one.name == f"{operation} {attributes(one)[f'gen_ai.{named}'].string_value}"
        assert attributes(one)["gen_ai.provider.name"].string_value == "rubricem"


@pytest.mark.parametrize(("asked", "is_there"), [("", False), ("true", True)])
async def test_no_text_leaves_unless_it_is_asked_for(collector, asked, is_there):
    environ = {**collector.environ, CONTENT: asked}
    await play(environ)
    sent = b"".join(collector.bodies)
    assert [text in sent for text in (b"Tall Fox", b"structured_plan")] == [is_there] * 2


async def test_texts_are_messages_as_the_conventions_write_them(collector):
    await play({**collector.environ, CONTENT: "true"})
    chat = next(one for one in collector.spans if one.name == "chat scripted")
    (reply,) = json.loads(attributes(chat)["gen_ai.output.messages"].string_value)
    # A collector that validates them, such as Phoenix, drops a reply without its finish_reason.
    assert (reply["role"], reply["finish_reason"], reply["parts"][0]["type"]) == ("assistant", "stop", "text")


async def test_a_failed_call_has_its_type_and_neither_its_message_nor_a_name_that_the_policy_made_up(collector):
    provider = export_traces(collector.environ)
    name = "secret words of a page"
    await call_tool(LocalToolbox(), ToolCall(name=name, query="more secret words"))
    with pytest.raises(ValueError, match="secret"), span("chat", "broken"):
        raise ValueError("secret")
    provider.shutdown()

    called, broken = collector.spans
    assert called.name == "execute_tool unknown"
    assert attributes(called)["error.type"].string_value == "error"
    assert attributes(broken)["error.type"].string_value == "ValueError"
    assert (broken.status.code, broken.status.message) == (2, "")
    assert b"secret" not in b"".join(collector.bodies)


async def test_nothing_is_sent_without_an_address(collector):
    await play({CONTENT: "true"})
    assert collector.bodies == []
