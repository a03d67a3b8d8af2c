"""A run with a script tag in every field: told as JSON, byte for byte, and never as anything that a browser runs."""

import json

import pytest

from rubricem_env.domain.judgement import Provenance
from rubricem_env.domain.trajectory import Observation, Origin, Segment, Source, ToolCall, ToolStatus, query_key
from rubricem_env.testing.judges import ANSWER, attempt
from tests.fakes import rubric

pytestmark = pytest.mark.no_cover

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\u2028'\"`${x}"
ADDRESSES = ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "https://ok.example/a?b=<c>")


def hostile_trajectory():
    snippets = "".join(
        f'<snippet id="S_{number}">{EVIL.splitlines()[0]} | {address}\n{EVIL}</snippet>\n'
        for number, address in enumerate(ADDRESSES, 1)
    )
    call = ToolCall(name="google_search", query=EVIL, parameters=((EVIL, EVIL),))
    ids = tuple(f"S_{number}" for number in range(1, 5))
    sources = tuple(Source(title=EVIL.splitlines()[0], url=address) for address in ADDRESSES)
    seen = Observation(status=ToolStatus.OK, call=call, snippet_ids=ids, sources=sources)
    given = attempt(question=EVIL, plan=f"<think>{EVIL}</think><structured_plan>{EVIL}</structured_plan>")
    result = Segment(origin=Origin.TOOL, text=f"<tool_output>\n{snippets}</tool_output>", observation=seen)
    last = Segment(origin=Origin.POLICY, text=ANSWER.replace("It", EVIL), cut=EVIL)
    return given.model_copy(update={"segments": (*given.segments[:2], result, last)})


@pytest.fixture
def hostile(recording, made):
    one = rubric(EVIL).model_copy(update={"provenance": Provenance(step=1, model=EVIL, prompt_hash=EVIL)})
    group = {
        "judge": EVIL,
        "rubrics": (one,),
        "active": (made.kept(one, 1),),
        "refused": (EVIL,),
        "proposal_failure": EVIL,
        "lessons": (made.shown(1),),
    }
    trajectory = hostile_trajectory()
    recording.settings({"credit": EVIL, EVIL: {EVIL: EVIL}, "steps": 9})
    recording.log(warning=EVIL)
    recording.add(question=EVIL, group=group, trajectory=trajectory, reason=f"“{EVIL}”", failure=EVIL)
    recording.recorder.record_vocabulary(lambda: [EVIL] * 4)
    recording.add_lessons(EVIL, takeaways=EVIL.partition("<img")[0])
    return recording


PATHS = (
    *("", "/state", "/curves", "/trajectories", "/trajectories/1-0-0", "/trajectories/1-0-0/elements/1"),
    *("/trajectories/1-0-0/tokens", "/groups/1-0", "/questions", f"/questions/{query_key(EVIL)}"),
    *("/bank", "/bank/search?text=script", "/bank?q=%3Cscript%3E", "/trajectories?q=%3Cscript%3E"),
    *("/trajectories/%3Cscript%3E", "/groups/%3Cscript%3E", "/questions/%3Cscript%3E", "/%3Cscript%3E"),
)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_json_that_no_browser_sniffs(hostile, get, path):
    answer = get.client.get(f"/api/runs/{get.run}{path}")

    assert answer.status_code in (200, 404)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    json.loads(answer.content)


def test_text_arrives_as_it_was_written(hostile, get):
    view = get("/trajectories/1-0-0")
    history = get(f"/questions/{query_key(EVIL)}")
    detail = get("")

    assert view["row"]["question"] == EVIL
    assert view["failure"] == EVIL
    assert history["rubrics"][0]["rubric"]["description"] == EVIL
    assert detail["settings"][EVIL] == {EVIL: EVIL}


def test_addresses_of_snippets_are_of_the_web_or_empty(hostile, get):
    elements = get("/trajectories/1-0-0")["elements"]

    urls = [snippet["url"] for one in elements for snippet in one["snippets"]]
    assert urls == ["", "", "", "https://ok.example/a?b=%3Cc%3E"]


def test_a_run_whose_folder_has_a_hostile_name_is_listed_under_an_id_that_is_safe_in_a_path(tmp_path, made, serve):
    made.Recording(tmp_path / "<script>alert(1)" / "a?b#c%2f")

    get = serve(tmp_path)

    assert get.run.isalnum()
    assert get("")["card"]["name"] == "<script>alert(1)/a?b#c%2f"


def test_a_log_of_nonsense_makes_a_run_unreadable_and_leaves_the_others_alone(tmp_path, made, serve):
    made.Recording(tmp_path / "good")
    broken = made.Recording(tmp_path / "broken")
    (broken.folder / "metrics.jsonl").write_text('{"step": "<script>"}\n{}\n')

    cards = serve(tmp_path).cards

    assert cards["good"]["state"] == "finished"
    assert cards["broken"]["state"] == "unreadable"
    assert "metrics.jsonl" in cards["broken"]["problem"]
