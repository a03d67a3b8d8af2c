"""A damaged folder is one sentence on its own page and in its report, and never hides the other runs."""

import os
import re
import shutil

import pytest

from rubricem_env.domain.errors import RubricEMError
from rubricem_viewer.report import render_report

DEEP, DIGITS = "[" * 100_000, "9" * 5_000
HUGE = 99_999_999_999_999_999_999_999


def write(name, text):
    def damage(run):
        path = run / name
        path.unlink(missing_ok=True)
        path.write_text(text)

    return damage


def append(name, text):
    return lambda run: (run / name).write_text((run / name).read_text() + text)


def number(name, field, value):
    """Another number in the first row that has the field."""
    return lambda run: (run / name).write_text(
        re.sub(rf'"{field}": ?\d+', f'"{field}":{value}', (run / name).read_text(), count=1)
    )


def endless(name):
    def damage(run):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to("/dev/zero")

    return damage


OVERFLOW = '{"step": 9, "encounter": "new", "true": {}, "judged": {}, "seconds": {"a": 1e308, "b": 1e308}}\n'
ROLLOUTS, GROUPS = "record/rollouts.index.jsonl", "record/groups.index.jsonl"
DAMAGES = {
    "deep settings": write("config.json", DEEP),
    "deep settings of objects": write("config.json", '{"a":' * 100_000),
    "settings deeper than an answer may be": write("config.json", '{"a":' * 500 + "1" + "}" * 500),
    "settings with an enormous number": write("config.json", f'{{"steps": {DIGITS}}}'),
    "settings with half a character": write("config.json", '{"system": "\\ud800", "\\udfff": 1}'),
    "deep log": append("metrics.jsonl", f"{DEEP}\n"),
    "log with an enormous number": append("metrics.jsonl", f'{{"step": {DIGITS}}}\n'),
    "log with seconds beyond floats": append("metrics.jsonl", OVERFLOW),
    "log with a number beyond floats": number("metrics.jsonl", "bank", "9" * 400),
    "deep vocabulary": write("record/vocabulary.json", DEEP),
    "endless vocabulary": endless("record/vocabulary.json"),
    "endless index": endless(ROLLOUTS),
    "endless lessons": endless("record/lessons.jsonl"),
    "endless settings": endless("config.json"),
    **{
        f"rollout with a huge {field}": number(ROLLOUTS, field, HUGE)
        for field in ("at", "size", "step", "attempt", "calls", "tokens")
    },
    **{
        f"group with a huge {field}": number(GROUPS, field, HUGE) for field in ("at", "size", "step", "place", "active")
    },
    **{f"rollout of {size} bytes": number(ROLLOUTS, "size", size) for size in (99_999_999_999, 2**52)},
    **{f"{name} ablation": write("ablation.json", text) for name, text in (("deep", DEEP), ("enormous", DIGITS))},
    "evaluation with a deep manifest": lambda run: [
        (run / "metrics.jsonl").unlink(),
        (run / "config.json").unlink(),
        write("run.json", DEEP)(run),
    ],
}
PATHS = (
    *("", "/curves", "/trajectories?sort=best", "/trajectories/1-0-0", "/trajectories/1-0-0/tokens", "/groups/1-0"),
    *("/questions", "/bank", "/bank/search?text=x", "/evaluation", "/ablation"),
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_one_sentence_and_the_others_are_listed(recording, made, serve, damage):
    recording.add().add_lessons("Which is wider?")
    shutil.copytree(recording.folder, recording.folder.parent / "damaged")
    DAMAGES[damage](recording.folder.parent / "damaged")

    get = serve(recording.folder.parent)
    cards = get.cards
    answers = [get.client.get(f"/api/runs/{cards['damaged']['id']}{path}") for path in PATHS]

    assert cards["run"]["state"] == "finished"
    assert {answer.status_code for answer in answers} <= {200, 404, 409}
    assert all(len(answer.json().get("message", "")) < 600 for answer in answers)
    assert report_or_refusal(recording.folder.parent / "damaged").startswith(("<!doctype html>", "refused: "))


def report_or_refusal(folder):
    try:
        return render_report(folder)
    except RubricEMError as refusal:
        return f"refused: {refusal}"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_run_whose_log_is_no_file_is_listed_as_unreadable(recording, serve, make):
    recording.add()
    broken = recording.folder.parent / "broken"
    broken.mkdir()
    make(broken / "metrics.jsonl")
    cards = serve(recording.folder.parent).cards
    assert (cards["broken"]["state"], cards["run"]["state"]) == ("unreadable", "finished")
    assert "is a folder, a pipe or a device" in cards["broken"]["problem"]
    with pytest.raises(RubricEMError, match="is a folder, a pipe or a device"):
        render_report(broken)


@pytest.mark.parametrize("name", ["run.json", "ablation.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_run_whose_manifest_is_no_file_is_listed_as_unreadable(recording, serve, make, name):
    broken = recording.folder.parent / "broken"
    broken.mkdir()
    make(broken / name)
    card = serve(recording.folder.parent).cards["broken"]
    assert card["state"] == "unreadable"
    assert "is a folder, a pipe or a device" in card["problem"]
