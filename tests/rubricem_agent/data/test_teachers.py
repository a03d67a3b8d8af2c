"""Teachers behind models: a live API, a folder of request files, and Gemini's batch jobs against our own server."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from rubricem_agent.data.base import RepliesPending, TeacherTask, Trace, TurnReply
from rubricem_agent.data.batch_teacher import (
    BatchTeacher,
    deliver_replies,
    post_requests,
    read_replies,
    read_requests,
    unanswered_requests,
)
from rubricem_agent.data.gemini_batch import GeminiBatch
from rubricem_agent.data.generate import Generation
from rubricem_agent.data.teacher import ChatTeacher, TeacherPrompts
from rubricem_env.domain.errors import ConfigError, FileFormatError, ModelError
from rubricem_env.llm.chat import ChatReply
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.world.offline import shipped_toolbox
from rubricem_records.files.line_file import LineFile
from tests.fakes import ScriptedModel
from tests.search_server import SearchReply, SearchServer

Make = Callable[..., Trace]
PROMPTS = TeacherPrompts.ours()


async def no_wait(seconds: float) -> None:
    return


TIMING = Timing.real(0)._replace(sleep=no_wait)


@pytest.fixture
def pending(make_trace: Make) -> list[Trace]:
    """The first turn of one trace, and the second of another."""
    trace = make_trace()
    begun = trace.trajectory.model_copy(update={"segments": trace.trajectory.segments[:3]})
    fresh = trace.trajectory.model_copy(update={"segments": trace.trajectory.segments[:1]})
    return [Trace(trace.task, fresh), Trace(TeacherTask("q2", trace.task.query), begun)]


def test_the_first_round_shows_the_question_and_later_rounds_all_work_so_far(pending: list[Trace]) -> None:
    first, later = (PROMPTS.request(turn) for turn in pending)

    assert "How wide is Calm Bridge?" in first.prompt
    assert "in one short paragraph" in first.prompt
    assert "No `<answer>`" in first.system
    assert pending[1].trajectory.segments[2].text in later.prompt
    assert "You have 9 rounds left" in later.prompt


async def test_a_live_teacher_retries_what_is_retryable_and_replies_with_other_errors(pending: list[Trace]) -> None:
    first = iter([ModelError("busy", is_retryable=True), "a plan"])
    model = ScriptedModel(lambda asked: ModelError("no such model") if "so far" in asked.prompt else next(first))
    teacher = ChatTeacher(model, PROMPTS, timing=TIMING, retry=RetryPolicy())
    assert await teacher.write(pending) == [
        TurnReply(id="q1.1", text="a plan"),
        TurnReply(id="q2.2", error="no such model", outage=True),
    ]
    blocked = ScriptedModel([ChatReply(text="", model="m", finish="blocked")] * 6)
    (reply,) = await ChatTeacher(blocked, PROMPTS, timing=TIMING, retry=RetryPolicy()).write(pending[:1])
    assert reply.error == "the server blocked the reply"


async def test_a_folder_is_the_teacher_requests_go_out_once_and_replies_come_in(
    pending: list[Trace], tmp_path: Path
) -> None:
    folder = tmp_path / "box"
    teacher = BatchTeacher(folder, prompts=PROMPTS)
    for _ in range(2):
        with pytest.raises(RepliesPending, match=r"requests-0001\.jsonl in .* waits for its replies"):
            await teacher.write(pending)
    (path,) = unanswered_requests(folder)
    assert [fields["id"] for fields in read_requests(path)] == ["q1.1", "q2.2"]

    deliver_replies(path, [TurnReply(id="q2.2", error="refused"), TurnReply(id="q1.1", text="a plan")])
    assert [reply.text or reply.error for reply in await teacher.write(pending)] == ["a plan", "refused"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"id": "q9.1", "text": "x"}'], "line 1 answers 'q9.1', which was not asked; remove the line."),
        (['{"id": "q1.1", "tex'], "line 1 is no reply"),
        (['{"id": "q1.1", "text": "x"}'], "answers 1 of 2 requests; 'q2.2' is missing."),
    ],
)
async def test_a_bad_reply_file_is_refused_in_one_sentence(
    pending: list[Trace], tmp_path: Path, lines: list[str], message: str
) -> None:
    post_requests(tmp_path, {trace.next_id: PROMPTS.request(trace) for trace in pending})
    (tmp_path / "replies-0001.jsonl").write_text("\n".join(lines))
    with pytest.raises(FileFormatError) as refusal:
        read_replies(tmp_path)
    assert message in str(refusal.value)


async def test_a_run_through_a_folder_advances_round_by_round_to_the_end(make_trace: Make, tmp_path: Path) -> None:
    wanted = make_trace()
    folder = tmp_path / "box"
    teacher = BatchTeacher(folder, prompts=PROMPTS)
    generation = Generation(teacher, shipped_toolbox(), journal=LineFile(tmp_path / "j"))
    turns = [wanted.trajectory.segments[1].text, wanted.trajectory.segments[3].text]
    for text in turns:
        with pytest.raises(RepliesPending):
            await generation.run([wanted.task])
        (path,) = unanswered_requests(folder)
        deliver_replies(path, [TurnReply(id=read_requests(path)[0]["id"], text=text)])
    (trace,) = await generation.run([wanted.task])

    assert trace.trajectory.policy_text == "".join(turns)


async def test_gemini_batch_jobs_answer_the_folder_and_are_submitted_once(pending: list[Trace], tmp_path: Path) -> None:
    written = {"response": {"candidates": [{"content": {"parts": [{"text": "a plan"}]}}]}}
    output = {"inlinedResponses": {"inlinedResponses": [written, {"error": {"code": 3, "message": "too long"}}]}}
    states = {"state": "BATCH_STATE_PENDING"}, {"state": "BATCH_STATE_RUNNING"}
    done = {"state": "BATCH_STATE_SUCCEEDED", "output": output}
    server = SearchServer(*(SearchReply({"name": "batches/7", "metadata": one}) for one in (*states, done)))
    with serve_loopback(server.app) as url:
        carrier = GeminiBatch("gemini-3.1-pro-preview", SecretStr("test-key"), timing=TIMING, base_url=url)
        teacher = BatchTeacher(tmp_path, prompts=PROMPTS, name=carrier.name, carry=carrier.carry, close=carrier.aclose)
        replies = await teacher.write(pending)
        again = await teacher.write(pending)
        await teacher.aclose()

    assert [reply.text or reply.error for reply in replies] == ["a plan", "too long"]
    assert again == replies
    # Submitted once, and done at the second look.
    assert [request["json"] is not None for request in server.requests] == [True, False, False]
    assert (tmp_path / "requests-0001.job").read_text() == "batches/7"


async def test_a_folder_that_was_asked_another_question_under_the_id_is_refused(
    pending: list[Trace], tmp_path: Path
) -> None:
    teacher = BatchTeacher(tmp_path, prompts=PROMPTS)
    with pytest.raises(RepliesPending):
        await teacher.write(pending[:1])
    other = pending[0].task.query.model_copy(update={"question": "How do heat pumps work?"})

    with pytest.raises(ConfigError, match=r"has asked for 'q1\.1' with another prompt"):
        await teacher.write([pending[0]._replace(task=TeacherTask("q1", other))])
    with pytest.raises(RepliesPending):
        await teacher.write(pending[:1])


async def test_a_turn_that_the_server_lost_is_posted_again_by_the_next_run(
    pending: list[Trace], tmp_path: Path
) -> None:
    folder = tmp_path / "batches"

    def run() -> BatchTeacher:
        return BatchTeacher(folder, prompts=PROMPTS)

    with pytest.raises(RepliesPending):
        await run().write(pending)
    (first,) = unanswered_requests(folder)
    lost = TurnReply(id="q2.2", error="the service was overloaded", outage=True)
    deliver_replies(first, [TurnReply(id="q1.1", text="a plan"), lost])
    teacher = run()
    with pytest.raises(RepliesPending):
        await teacher.write(pending)
    (second,) = unanswered_requests(folder)
    assert [line["id"] for line in read_requests(second)] == ["q2.2"]
    # Another run while it waits posts nothing more.
    with pytest.raises(RepliesPending):
        await run().write(pending)
    assert unanswered_requests(folder) == [second]
    deliver_replies(second, [TurnReply(id="q2.2", text="a search")])
    assert [reply.text for reply in await run().write(pending)] == ["a plan", "a search"]


async def test_a_turn_is_posted_again_once_a_run(pending: list[Trace], tmp_path: Path) -> None:
    async def loses(folder: Path) -> None:
        for path in unanswered_requests(folder):
            names = [line["id"] for line in read_requests(path)]
            deliver_replies(path, [TurnReply(id=name, error="overloaded", outage=True) for name in names])

    for files in (1, 2, 3):
        teacher = BatchTeacher(tmp_path, prompts=PROMPTS, carry=loses)
        replies = await teacher.write(pending)
        assert all(reply.outage for reply in replies)
        assert len(list(tmp_path.glob("requests-*.jsonl"))) == files
