"""Every benchmark, whole, with real clients against a judge on loopback; a kill anywhere changes no number."""

import json
import time
from pathlib import Path

import pytest

from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.stored_runs import rescore_run
from rubricem_env.domain.errors import ConfigError

HEALTHBENCH = (5 / 12 + 5 / 15 + 5 / 20 + 5 / 27) / 4
"""Item 0 with its 5 points is met; the positive points are 12, 15, 20 and 27, each twice."""
RESEARCHRUBRICS = (5 / 11 + 5 / 12 + 5 / 12 + 5 / 17 + 5 / 21 + 5 / 21) / 6
"""Item 0 of weight 5 is satisfied; weights go round 5, 4, -3, 2, 1, -5 and 4 to 9 of them are there."""

RUNS = [
    ("healthbench", "official", HEALTHBENCH),
    ("healthbench", "drtulu", HEALTHBENCH),
    ("researchqa", "official", 0.75),
    ("researchqa", "drtulu", 0.75),
    ("researchrubrics", "official", RESEARCHRUBRICS),
    ("simpleqa", "official", 0.5),
    ("simpleqa", "strict", 0.5),
    ("twowiki", "official", 0.5),
    ("twowiki", "drtulu", 0.0),
    ("webwalkerqa", "official", 0.5),
    # Three of the eight have a single answer; the other five have one in excess.
    ("deepsearchqa", "official", 3 / 8),
    # 6 / (6 + 4).
    ("drb", "official", 0.6),
]


@pytest.mark.parametrize(("name", "mode", "expected"), RUNS)
def test_a_whole_run_gives_the_number_worked_by_hand(run, make_config, name, mode, expected):
    finished = run(make_config(name, mode))

    assert finished.scores.is_complete
    assert finished.runner.failures == []
    assert finished.scores.headline.score == pytest.approx(expected, abs=1e-12)


def test_answers_and_verdicts_are_logged_with_the_seconds_that_each_took(run, make_config):
    config = make_config("simpleqa")
    begun = time.monotonic()
    run(config)
    whole = time.monotonic() - begun
    for log in ("answers.jsonl", "verdicts.jsonl"):
        rows = [json.loads(line) for line in (config.folder / log).read_text(encoding="utf-8").splitlines()]
        assert rows
        assert all(0 < row["seconds"] < whole for row in rows)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("name", "mode", "share"), [(name, mode, (0.3, 0.77)[at % 2]) for at, (name, mode, _) in enumerate(RUNS)]
)
def test_truncated_logs_are_completed_to_the_same_numbers(run, make_config, judge_app, name, mode, share):
    config = make_config(name, mode)
    whole = run(config).scores
    asked = len(judge_app.asked)
    for log in ("answers.jsonl", "verdicts.jsonl"):
        truncate(config.folder / log, share)

    again = run(config).scores

    assert again.judges == whole.judges
    assert again.found == whole.found
    # Only what was lost is asked again.
    assert len(judge_app.asked) - asked <= asked


def test_resuming_a_finished_run_asks_nothing_and_writes_nothing(run, make_config, judge_app):
    config = make_config("healthbench")
    run(config)
    before, asked = contents(config.folder), len(judge_app.asked)

    run(config)

    assert (contents(config.folder), len(judge_app.asked)) == (before, asked)


def test_rescoring_needs_no_judge_and_gives_the_stored_numbers(run, make_config):
    finished = run(make_config("researchrubrics"))

    assert rescore_run(finished.folder).judges == finished.scores.judges


def test_two_judges_are_scored_apart_and_their_agreement_is_counted(run, make_config, judge_url):
    judges = (f"openai:first@{judge_url}", f"openai:second@{judge_url}")

    scores = run(make_config("simpleqa", judges=judges)).scores

    assert [judge.score for judge in scores.judges] == [0.5, 0.5]
    assert (scores.agreements[0].kappa, scores.agreements[0].n) == (1.0, 8)


def test_epochs_repeat_every_example_and_split_the_variance(run, make_config):
    scores = run(make_config("simpleqa", epochs=3)).scores

    # Half right, half wrong, the same in every epoch: all variance is between examples.
    assert (scores.expected, scores.headline.score) == (24, 0.5)
    assert (scores.variance["between"], scores.variance["within"]) == (0.25, 0.0)
    assert scores.headline.spread.method.startswith("bootstrap over 8 prompts")


def test_answers_can_be_made_first_and_judged_later(run, make_config, judge_app):
    answers_only = run(make_config("simpleqa", stage="answers")).scores
    assert (answers_only.answered, len(judge_app.asked)) == (8, 0)
    assert answers_only.headline.ungraded == {"not judged yet": 8}

    judged = run(make_config("simpleqa", stage="verdicts")).scores

    assert judged.headline.score == 0.5


def test_another_mode_judges_the_same_answers_without_making_them_anew(run, make_config, tmp_path):
    run(make_config("simpleqa"))

    other = run(make_config("simpleqa", "strict", out=tmp_path / "strict", answers_from=tmp_path / "run"))

    assert (other.runner.answered, other.runner.judged) == (0, 8)


def test_what_was_judged_before_this_start_is_counted_apart(run, make_config):
    run(make_config("simpleqa", limit=3))
    runner = run(make_config("simpleqa", limit=3)).runner

    assert (runner.answered, runner.judged, runner.answered_before, runner.judged_before) == (0, 0, 3, 3)


def truncate(path: Path, share: float) -> None:
    """What kill -9 leaves: a log that ends in the middle of a line."""
    if path.exists():
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix == ".jsonl"}


def test_every_line_of_the_logs_is_keyed_by_benchmark_mode_example_and_epoch(run, make_config):
    finished = run(make_config("simpleqa"))

    for name in ("answers.jsonl", "verdicts.jsonl"):
        lines = [json.loads(line) for line in (finished.folder / name).read_text().splitlines()]
        assert {(line["benchmark"], line["mode"]) for line in lines} == {("simpleqa", "official")}
        assert [(line["id"], line["epoch"]) for line in sorted(lines, key=lambda line: line["id"])] == [
            (str(number), 0) for number in range(8)
        ]


def test_a_policy_with_tools_is_judged_on_the_answer_that_it_gave(run, make_config, judge_app):
    scores = run(make_config("simpleqa", policy="scripted", limit=3)).scores

    assert scores.is_complete
    assert scores.endings == {"answered": 3}
    # random.Random(0).sample(range(8), 3); the judge here grades by the gold answer alone, and only 6 is even.
    assert scores.manifest.inputs.ids == ("6", "7", "3")
    assert scores.headline.score == 1 / 3
    assert all("<answer>" not in asked.prompt for asked in judge_app.asked)


def test_fact_is_refused_where_no_tool_can_read_a_page(run, make_config):
    with pytest.raises(ConfigError, match="fetch_page = true"):
        run(make_config("drb", fact=True))


def test_in_mode_drtulu_the_agent_is_asked_in_dr_tulus_form_for_its_answer_format(run, make_config, tmp_path):
    run(make_config("healthbench", "drtulu", policy="scripted", stage="answers", limit=1))

    (line,) = (tmp_path / "run" / "answers.jsonl").read_text().splitlines()
    trajectory = json.loads(line)["trajectory"]
    assert "patient" in trajectory["question"].lower()
    assert trajectory["answer_format"] == "short"


def test_a_run_of_researchqa_in_mode_drtulu_is_told_of_dr_tulus_examples(make_config, tmp_path):
    (tmp_path / "ids.json").write_text('["synthetic-2-s2"]')

    (note,) = plan_run(make_config("researchqa", "drtulu")).notes()
    chosen = plan_run(make_config("researchqa", "drtulu", ids=tmp_path / "ids.json"))

    assert "--ids hf:rl-research/researchqa_official_subset_ids/" in note
    assert chosen.notes() == []
    assert chosen.manifest.inputs.ids == ("synthetic-2-s2",)
    assert plan_run(make_config("researchqa", out=tmp_path / "official")).notes() == []


def test_each_judges_replies_are_counted_as_its_own(run, make_config, judge_url):
    judges = (f"openai:one@{judge_url}", f"openai:two@{judge_url}")
    scores = run(make_config("simpleqa", judges=judges)).scores
    # Eight questions, each one reply of each judge.
    assert [(judge.judge, judge.replies) for judge in scores.judges] == [(judge, 8) for judge in judges]
