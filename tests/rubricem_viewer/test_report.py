"""The report: one file under a policy, with nothing of the run outside its data, of a size that does not grow."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_viewer import samples
from rubricem_viewer.report import render_report
from rubricem_viewer.single_file import inert_json, load_bundle, security_policy

STAGES = ("plan", "research", "review", "answer")
HOSTILE = "</script><script>x</script><!--<script>\u2028&lt;"
SETTINGS = {"credit": "stages", "meta_policy": True, "steps": 12, "seed": 3, "system": HOSTILE}
SAMPLE = Path(__file__).parents[1] / "samples" / "viewer_run"


def step(number, **more):
    scores = dict.fromkeys(STAGES, 0.5)
    told = {stage: {"tokens": 10, "entropy": 0.3, "kl": 0.01, "loss_share": 0.25} for stage in STAGES}
    return {
        "step": number,
        "encounter": "new",
        "true": scores,
        "judged": {**scores, "review": None},
        "task": {"loss": 0.1, "grad_norm": 1.0, "tokens": 40, "stages": told},
        "utility": 0.5,
        "bank": number,
        "rollout_stats": {"answer_words": 40.0, "repeated_calls": 0.0, "valid": 1.0, "policy_tokens": 100},
        "gradients": {"cosine": 0.2, "task_norm": 1.0, "reflection_norm": 1.0},
        "seconds": {"sample": 30.0, "reflect": 2.0, "update": 8.0},
        **more,
    }


def evaluation(number, answer):
    return {"step": number, "held_out": {**dict.fromkeys(STAGES, 0.5), "answer": answer}, "valid": 0.9}


def write(folder, *lines, settings=SETTINGS):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if settings is not None:
        (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


class Page(HTMLParser):
    """What the attributes of a page point to, and its scripts."""

    def __init__(self, text):
        super().__init__()
        self.links, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    @property
    def answers(self):
        return json.loads(self.scripts[0])["answers"]


def page_of(folder):
    return Page(render_report(folder))


def test_its_policy_lets_in_the_bundle_and_nothing_else(tmp_path):
    text = render_report(write(tmp_path, step(1)))

    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy == security_policy(*load_bundle())
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    # The policy stands before everything that it speaks of.
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


def test_the_page_points_nowhere_and_what_a_run_holds_cannot_leave_its_data(tmp_path):
    page = page_of(write(tmp_path, step(1)))

    assert page.links == ["data:,"]
    assert len(page.scripts) == 2
    assert page.scripts[1].strip() == load_bundle()[0].strip()
    assert page.answers["/runs/run"]["settings"]["system"] == HOSTILE


def test_json_in_a_script_element_has_no_character_that_html_reads():
    text = inert_json({HOSTILE: HOSTILE})

    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {HOSTILE: HOSTILE}


def test_the_page_names_the_recipe_the_change_and_the_warnings(tmp_path):
    warnings = [{"step": 2, "warning": "judge & truth part"}, {"step": 2, "warning": "answers are shrinking"}]

    answers = page_of(write(tmp_path, evaluation(0, 0.4), step(1), step(2), evaluation(2, 0.6), *warnings)).answers

    card = answers["/runs/run"]["card"]
    held_out = next(one for one in answers["/runs/run/curves"]["figures"] if one["key"] == "held_out.answer")
    assert card["title"] == "SS-GRPO + meta-policy"
    assert (card["step"], card["steps"]) == (2, 12)
    assert held_out["curves"][0]["y"] == [0.4, 0.6]
    # Two steps of 30 + 2 + 8 seconds.
    assert card["seconds"] == 80
    assert answers["/runs/run"]["warnings"] == [{"step": one["step"], "message": one["warning"]} for one in warnings]


def test_floor_and_ceilings_stand_beside_the_curve_of_the_shipped_policy_and_entropy_and_spread_by_stage(tmp_path):
    shipped = {**SETTINGS, "policy": "tiny", "held_out": "validation"}
    lines = (evaluation(0, 0.4), step(1, spread={"plan": 0.25, "answer": 1.0}), evaluation(2, 0.6))
    answers = page_of(write(tmp_path, *lines, settings=shipped)).answers

    figures = {figure["key"]: figure for figure in answers["/runs/run/curves"]["figures"]}
    own, *levels = figures["held_out.answer"]["curves"]
    assert own["name"] == "this run"
    assert levels[0]["name"].startswith("floor")
    assert levels[-1]["name"].startswith("ceiling")
    assert levels[-1]["y"] == [1.0, 1.0]
    assert all(level["x"] == [0.0, 2.0] and level["dashed"] for level in levels)
    drawn = [
        {one["name"]: one["y"] for one in figures[f"policy.{key}"]["curves"]} for key in ("spread", "entropy.stages")
    ]
    assert drawn == [{"plan": [0.25], "answer": [1.0]}, {stage: [0.3] for stage in STAGES}]


BARE_STEP = {key: value for key, value in step(1).items() if key not in ("rollout_stats", "gradients")}


@pytest.mark.parametrize("line", [evaluation(0, 0.4), BARE_STEP])
def test_a_run_with_its_first_evaluation_alone_or_with_few_measurements_has_a_page(tmp_path, line):
    answers = page_of(write(tmp_path, line, settings=None)).answers

    assert answers["/runs/run"]["card"]["title"] == "a training run"
    assert "/runs/run/trajectories" not in answers


def test_a_recorded_run_brings_a_question_before_and_after_with_its_attempts_rubrics_and_lessons():
    answers = page_of(SAMPLE).answers

    question = answers["/runs/run/questions"]["rows"][0]
    history = answers[f"/runs/run/questions/{question['key']}"]
    first, last = (answers[f"/runs/run/groups/{history['steps'][at]['group']}"] for at in (0, -1))
    attempt = answers[f"/runs/run/trajectories/{last['rollouts'][0]['row']['id']}"]
    assert first["step"] < last["step"]
    assert attempt["row"]["question"] == question["question"]
    assert any(life["status"] == "retired" for life in history["rubrics"])
    assert answers["/runs/run/bank"]["rows"]
    assert all(f"/runs/run/bank/{row['id']}" in answers for row in answers["/runs/run/bank"]["rows"])


def test_attempts_that_do_not_fit_are_left_out_of_the_list_too(monkeypatch):
    largest = max(len(line) for line in json.dumps(page_of(SAMPLE).answers).splitlines())
    monkeypatch.setattr(samples, "ROOM", 100_000)

    answers = page_of(SAMPLE).answers

    listed = {row["id"] for row in answers["/runs/run/trajectories"]["rows"]}
    held = {path.split("/")[4] for path in answers if path.startswith("/runs/run/trajectories/")}
    assert listed == held
    assert answers["/runs/run/trajectories"]["total"] == 32
    assert len(json.dumps(answers)) < largest


def test_a_newer_record_is_refused_in_one_sentence(tmp_path):
    shutil.copytree(SAMPLE, tmp_path / "run")
    index = tmp_path / "run" / "record" / "groups.index.jsonl"
    lines = index.read_text(encoding="utf-8").splitlines(keepends=True)
    header = {**json.loads(lines[0]), "record": 99}
    index.write_text("".join([json.dumps(header) + "\n", *lines[1:]]), encoding="utf-8")

    with pytest.raises(FileFormatError, match="99"):
        render_report(tmp_path / "run")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="it is no run's folder"):
        render_report(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_settings_are_refused(tmp_path, text):
    write(tmp_path, step(1), settings=None)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")

    with pytest.raises(FileFormatError, match=r"config\.json .* Start the run's command again"):
        render_report(tmp_path)
