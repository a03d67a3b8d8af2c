"""A server's error in place of a reply is an outage; prose without a verdict is unreadable. Neither is a score."""

import asyncio
import io
import json
import math

import pytest
from rich.console import Console

from rubricem_agent.evals.grading import Grader
from rubricem_agent.evals.report import print_summary, render_page, summarize
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_agent.wiring.stored_runs import rescore_run
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer

pytestmark = pytest.mark.no_cover


def sent(content: object, finish: str | None = "stop", **message: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return json.dumps({"model": "j", "choices": [choice]}).encode()


TOOL_CALL = [{"id": "1", "type": "function", "function": {"name": "x", "arguments": "{}"}}]
OUTAGES = {
    "null content": sent(None),
    "empty content": sent(""),
    "whitespace": sent("\n \u00a0\u3000\n"),
    "content filter without text": sent(None, "content_filter"),
    "content filter after a letter": sent("A", "content_filter"),
    "all tokens thought": sent("", "length"),
    "aborted after a letter": sent("A", "abort"),
    "an error as finish reason": sent("A", "error"),
    "a refusal field": sent(None, refusal="I cannot."),
    "a refusal beside content": sent("A", refusal="I cannot."),
    "invisible characters": sent("\u200b\u2060\ufeff\u3164\u2800\x00"),
    "a thought cut at the limit": sent("<think>A or B", "length"),
    "a thought that never closes": sent("\n<think>A</think>\u200b<think>B"),
    "a thought alone": sent("<think>A</think>\n"),
    "a tool call": sent(None, "tool_calls", tool_calls=TOOL_CALL),
    "content of another type": sent(5),
    "content in pieces": sent([{"type": "text", "text": "A"}]),
    "no choices": b'{"choices": []}',
    "null choices": b'{"choices": null}',
    "an error with status 200": b'{"error": {"message": "overloaded"}}',
    "an error beside choices": sent("A").replace(b"{", b'{"error": {"message": "overloaded"}, ', 1),
    "an empty object": b"{}",
    "a web page": b"<html>502 Bad Gateway: ask A, B or C</html>",
}


@pytest.mark.parametrize("reply", OUTAGES.values(), ids=OUTAGES.keys())
def test_what_is_no_reply_is_an_outage_that_a_resume_asks_again(run, make_config, reply):
    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=reply) if is_broken else "A")) as url:
        config = make_config("simpleqa", judges=(f"openai:judge@{url}/v1",), limit=2)
        is_broken = True
        broken = run(config)
        is_broken = False
        mended = run(config)

    judged = broken.scores.headline
    assert (judged.score, sum(judged.ungraded.values()), broken.scores.is_complete) == (None, 2, False)
    assert len(broken.runner.failures) == 2
    assert mended.scores.is_complete


def test_a_bug_in_a_grader_costs_its_example_alone(run, make_config, monkeypatch):
    grade = Grader.grade
    hit = []

    def broken(grader, case):
        if not hit:
            hit.append(case.example.id)
            raise KeyError("a bug")
        return grade(grader, case)

    monkeypatch.setattr(Grader, "grade", broken)
    with serve_loopback(ModelServer(lambda asked: "A")) as url:
        done = run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",), limit=2))
    (said,) = done.runner.failures
    assert f"could not grade example {hit[0]}: KeyError" in said
    assert done.scores.headline.graded == 1


GEMINI_OUTAGES = {
    "a blocked prompt": {"promptFeedback": {"blockReason": "SAFETY"}},
    "a blocked reply": {"candidates": [{"content": {"parts": [{"text": "A"}]}, "finishReason": "SAFETY"}]},
    "all tokens thought": {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]},
    "thoughts alone": {
        "candidates": [{"content": {"parts": [{"text": "A", "thought": True}]}, "finishReason": "STOP"}]
    },
    "a broken call": {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]},
    "an empty object": {},
}


@pytest.mark.parametrize("reply", GEMINI_OUTAGES.values(), ids=GEMINI_OUTAGES.keys())
def test_what_is_no_reply_of_gemini_is_an_outage_too(make_config, reply):
    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=json.dumps(reply).encode()))) as url:
        config = make_config("simpleqa", judges=(f"gemini:gemini-2.5-pro@{url}",), limit=1)
        scores = asyncio.run(run_evaluation(plan_run(config), {"GEMINI_API_KEY": "key-of-tests"})).scores

    assert (scores.headline.score, sum(scores.headline.ungraded.values())) == (None, 1)


@pytest.mark.parametrize(
    "name", ["healthbench", "researchqa", "researchrubrics", "webwalkerqa", "deepsearchqa", "drb", "twowiki"]
)
def test_no_benchmark_makes_a_score_of_an_empty_reply(run, make_config, name):
    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=sent(None)))) as url:
        mode = "drtulu" if name == "twowiki" else "official"
        scores = run(make_config(name, mode, judges=(f"openai:judge@{url}/v1",))).scores

    assert (scores.headline.score, scores.headline.graded, scores.is_complete) == (None, 0, False)


def test_an_empty_reply_is_asked_again_and_paid_for(run, make_config):
    replies = [sent(""), sent("A")]

    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=replies.pop(0)))) as url:
        retry = RetryPolicy(attempts=2, initial_delay=0.01)
        scores = run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",), limit=1, retry=retry)).scores

    assert (scores.headline.score, scores.costs[-1].usage.calls) == (1.0, 2)


def test_a_server_that_names_no_finish_reason_is_taken_at_its_word(run, make_config):
    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=sent("A", None)))) as url:
        assert run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",), limit=1)).scores.headline.score == 1.0


def test_the_default_service_is_no_part_of_a_judge_and_a_login_is_not_written_down(make_config):
    judges = ("openai:gpt-4.1@https://api.openai.com/v1/", "openai:m@http://me:secret@127.0.0.1:9/v1")

    planned = plan_run(make_config("simpleqa", judges=judges))

    assert planned.manifest.judges == ("openai:gpt-4.1", "openai:m@http://127.0.0.1:9/v1")
    assert planned.judge_models == ("gpt-4.1", "m")


def test_an_empty_verdict_in_the_log_is_asked_again(run, make_config, judge_app):
    finished = run(make_config("simpleqa", limit=1))
    log = finished.folder / "verdicts.jsonl"
    line = json.loads(log.read_text())
    log.write_text(json.dumps({**line, "replies": [""]}) + "\n")
    before = len(judge_app.asked)

    assert rescore_run(finished.folder).headline.ungraded == {"the reply is empty": 1}
    assert run(make_config("simpleqa", limit=1)).scores.judges == finished.scores.judges
    assert len(judge_app.asked) == before + 1


OPPOSITE = {
    "simpleqa": ["A server error occurred. Please try again later.", "NOT_ATTEMPTED", "Answer: B"],
    "webwalkerqa": [
        'It quotes "GRADE: CORRECT", which is planted.\nGRADE: INCORRECT',
        "This is not correct",
        "GRADE: CORRECT, no: GRADE: INCORRECT",
    ],
    "deepsearchqa": [
        '{"Answer Correctness": {"Explanation": "", "Correctness Details": {}}}',
        '{"Answer Correctness": {"Explanation": "", "Verdicts": {"a": false}, "Correctness Details": {}}}',
    ],
    "researchqa": ['{"score": NaN}', '{"score": 1}'],
    "researchrubrics": ['{"verdict": "Satisfied", "score": 100, "confidence": 1}'],
    "healthbench": ['{"criteria_met": true, "error": "overloaded"}'],
    "drb": ['{"comprehensiveness": [], "insight": [], "instruction_following": [], "readability": []}'],
}


@pytest.mark.parametrize(("name", "reply"), [(name, reply) for name, replies in OPPOSITE.items() for reply in replies])
def test_an_error_or_a_conflict_is_asked_again_and_never_graded(run, make_config, name, reply):
    article = "An invented article, long enough to count as one after it was cleaned of citations. " * 3
    with serve_loopback(ModelServer(lambda asked: article if "traces of citation" in asked.prompt else reply)) as url:
        done = run(make_config(name, judges=(f"openai:judge@{url}/v1",), limit=2))

    judged = done.scores.headline
    assert (judged.score, judged.graded, sum(judged.excluded.values()), judged.per_example) == (None, 0, 2, {})
    assert judged.unreadable >= 2 * 3
    assert rescore_run(done.folder).judges == done.scores.judges


def test_opposite_verdicts_of_dr_tulus_judge_are_none(run, make_config):
    with serve_loopback(ModelServer(lambda asked: "correct: yes ... correct: no")) as url:
        judged = run(make_config("twowiki", "drtulu", judges=(f"openai:judge@{url}/v1",), limit=2)).scores.headline

    assert (judged.score, judged.graded, judged.unreadable) == (None, 0, 2 * 3)
    assert judged.unreadable_share == 1.0


@pytest.mark.parametrize("reply", ["<think>thinking</think>A", "A"])
def test_a_reply_cut_by_the_token_limit_is_asked_again_and_read_back_as_cut(run, make_config, reply):
    replies = [sent(reply, "length"), sent("B")]
    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=replies.pop(0)))) as url:
        done = run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",), limit=1))
    with serve_loopback(ModelServer(lambda asked: ModelReply(raw=sent(reply, "length")))) as url:
        config = make_config("simpleqa", judges=(f"openai:judge@{url}/v1",), limit=1, out=done.folder.parent / "cut")
        always = run(config)

    assert (done.scores.headline.score, done.scores.headline.unreadable) == (0.0, 1)
    assert (always.scores.headline.score, always.scores.headline.unreadable) == (None, 3)
    assert rescore_run(always.folder).judges == always.scores.judges


def test_the_lenient_mode_grades_by_the_official_parse_and_shows_what_it_reads_differently(run, make_config):
    with serve_loopback(ModelServer(lambda asked: "An error occurred.")) as url:
        scores = run(make_config("simpleqa", "lenient", judges=(f"openai:judge@{url}/v1",), limit=2)).scores

    judged = scores.headline
    # The first capital letter of the reply is an A.
    assert (judged.score, judged.unreadable, judged.read_differently, judged.replies) == (1.0, 0, 2, 2)
    assert "2 read differently" in shown(scores)
    assert "the official parse reads them in another way" in render_page(summarize([scores]))


def test_numbers_that_add_up_to_none_are_no_score_in_the_lenient_mode_either(run, make_config):
    score = '{"verdict": "Satisfied", "score": 1e308, "confidence": 1}'
    with serve_loopback(ModelServer(lambda asked: score)) as url:
        done = run(make_config("researchrubrics", "lenient", judges=(f"openai:judge@{url}/v1",)))

    assert all(math.isfinite(value) for value in done.scores.headline.per_example.values())
    assert rescore_run(done.folder).judges == done.scores.judges


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1.0", "1e999", "true", '"1_0"', "null"])
@pytest.mark.parametrize(
    ("file", "field"), [("verdicts.jsonl", "seconds"), ("answers.jsonl", "seconds"), ("verdicts.jsonl", "epoch")]
)
def test_a_damaged_number_in_a_log_is_one_sentence_on_resume_and_rescore(run, make_config, file, field, number):
    done = run(make_config("simpleqa", limit=1))
    path = done.folder / file
    line = json.loads(path.read_text())
    line[field] = "?"
    path.write_text(json.dumps(line).replace('"?"', number) + "\n")

    for again in (lambda: run(make_config("simpleqa", limit=1)), lambda: rescore_run(done.folder)):
        with pytest.raises(FileFormatError, match=f"{file} line 1 is no .*Record"):
            again()


@pytest.mark.parametrize("prose", ["Service overloaded, try later", "An error occurred.", "I'm sorry, I can't."])
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("simpleqa", "official"),
        ("twowiki", "drtulu"),
        ("webwalkerqa", "official"),
        ("deepsearchqa", "official"),
        ("researchqa", "official"),
        ("researchrubrics", "official"),
        ("healthbench", "official"),
    ],
)
def test_prose_in_place_of_a_verdict_is_unreadable_with_its_share(run, make_config, name, mode, prose):
    with serve_loopback(ModelServer(lambda asked: prose)) as url:
        scores = run(make_config(name, mode, judges=(f"openai:judge@{url}/v1",), limit=2)).scores

    judged = scores.headline
    assert (judged.score, judged.graded, sum(judged.excluded.values()), scores.is_complete) == (None, 0, 2, True)
    assert judged.unreadable == judged.replies > 0
    assert "replies of the judge could not be read (100.0 %" in shown(scores)
    assert "100.0 %" in render_page(summarize([scores]))


def shown(scores) -> str:
    console = Console(file=io.StringIO(), width=220)
    print_summary(summarize([scores]), console)
    return console.file.getvalue()


@pytest.mark.parametrize("reply", ["<think>Beyond doubt, B or C.</think>\nA", "Clearly B, or C.\n</think>\n\nA"])
@pytest.mark.parametrize("mode", ["official", "strict"])
def test_the_reasoning_of_a_judge_holds_no_verdict(run, make_config, reply, mode):
    """The official script takes the first capital letter of the whole reply, which is B of "Beyond", or C."""
    with serve_loopback(ModelServer(lambda asked: reply)) as url:
        done = run(make_config("simpleqa", mode, judges=(f"openai:judge@{url}/v1",), limit=2))
    assert (done.scores.headline.score, done.scores.headline.unreadable) == (1.0, 0)


@pytest.mark.parametrize(
    "name", ["simpleqa", "healthbench", "researchqa", "researchrubrics", "webwalkerqa", "deepsearchqa", "drb"]
)
def test_a_judge_that_replies_in_the_asked_form_is_read_alike_in_both_modes(run, make_config, tmp_path, name):
    official = run(make_config(name)).scores.headline
    lenient = run(make_config(name, "lenient", out=tmp_path / "lenient")).scores.headline

    assert (lenient.metrics, lenient.per_example) == (official.metrics, official.per_example)
    assert (official.unreadable, lenient.unreadable, lenient.read_differently) == (0, 0, 0)
