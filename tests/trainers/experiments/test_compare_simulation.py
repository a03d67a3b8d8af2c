"""The simulation compared with a run's own log."""

import json
from pathlib import Path

import pytest

from trainers.experiments import compare_simulation


def line(
    step: int, *, seconds: dict[str, float], tokens: int = 400, reflects: bool = False, encounter: str = "new"
) -> str:
    update = {"loss": 0.0, "grad_norm": 1.0, "tokens": tokens, "stages": {}}
    habits = {"answer_words": 9.0, "repeated_calls": 0.0, "valid": 1.0, "policy_tokens": tokens}
    rows = {"step": step, "encounter": encounter, "true": {}, "judged": {}, "seconds": seconds, "habits": habits}
    return json.dumps({**rows, "task": update, "reflection": update if reflects else None})


def written(folder: Path, *lines: str) -> Path:
    (folder / "metrics.jsonl").write_text("".join(f"{one}\n" for one in lines))
    return folder


def cycle(first: int, *, sample: float = 8.0) -> list[str]:
    """A cycle with a window of one: a new step that reflects, then a repeat that trains on it."""
    return [
        line(first, seconds={"sample": sample, "reflect": 3.0, "update": 2.0}),
        line(first + 1, seconds={"sample": sample, "reflect": 0.0, "update": 6.5}, reflects=True, encounter="repeat"),
    ]


ARGUMENTS = ("--questions", "2", "--attempts", "2", "--window", "1")


def test_a_run_that_continues_as_it_began_is_predicted_to_the_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare_simulation.main([str(written(tmp_path, *cycle(1), *cycle(3))), *ARGUMENTS]) == 0

    # Averages of a step: 8 s of sampling, 3 / 2 of reflecting, (2 + 6.5) / 2 of updates.
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert [(row[0], row[2], row[5], row[-1]) for row in rows] == [
        ("sample", "8.00", "8.00", "1.00"),
        ("reflect", "1.50", "1.50", "1.00"),
        ("update", "4.25", "4.25", "1.00"),
        ("step", "13.75", "13.75", "1.00"),
    ]


def test_the_step_in_which_everything_warms_up_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A window of two: a first step of five minutes, and others of ten seconds."""
    usual = {"sample": 8.0, "reflect": 1.0, "update": 1.0}
    repeat = {"sample": 8.0, "reflect": 0.0, "update": 2.0}
    rows = [
        line(step, seconds=usual if step % 4 in (1, 2) else repeat, encounter="new" if step % 4 in (1, 2) else "repeat")
        for step in range(2, 9)
    ]
    folder = written(tmp_path, line(1, seconds={"sample": 300.0, "reflect": 90.0, "update": 60.0}), *rows)
    assert compare_simulation.main([str(folder), "--questions", "2", "--attempts", "2", "--window", "2"]) == 0
    ratios = [row.split()[-1] for row in capsys.readouterr().out.splitlines()]
    assert ratios[:2] == ["1.00", "1.00"]


def settings(folder: Path, *, questions: int, window: int = 1) -> Path:
    rows = {"questions_per_step": questions, "group_size": 2, "window": window, "meta_policy": True}
    (folder / "config.json").write_text(json.dumps(rows))
    return folder


def test_a_run_of_twice_the_questions_is_predicted_from_one_of_another_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, questions in ((small, 2), (large, 4)):
        folder.mkdir()
        settings(folder, questions=questions)
    assert (
        compare_simulation.main(
            [str(written(small, *cycle(1), *cycle(3))), "--of", str(written(large, *cycle(1), *cycle(3)))]
        )
        == 0
    )

    # Everything is predicted to take twice as long, and has taken no longer.
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        ("sample", "8.00", "16.00"),
        ("reflect", "1.50", "3.00"),
        ("update", "4.25", "8.50"),
        ("step", "13.75", "27.50"),
    ]


def test_the_size_of_a_run_is_read_from_its_settings_unless_they_do_not_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, *cycle(1), *cycle(3))
    assert compare_simulation.main([str(folder)]) == 2
    assert "do not contain questions_per_step; give --questions" in capsys.readouterr().err
    assert compare_simulation.main([str(settings(folder, questions=2))]) == 0


def test_the_log_of_a_run_on_verl_is_read_by_its_own_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Phase A, which the log calls reflect, is an update; a checkpoint is no part of a step.
    update = {"old_log_prob": 1.0, "ref": 0.5, "update_actor": 3.0, "reflect": 0.5}
    seconds = {"gen": 5.0, **update, "step": 14.0, "save_checkpoint": 4.0}
    assert (
        compare_simulation.main(
            [str(written(tmp_path, *(line(step, seconds=seconds) for step in (1, 2, 3, 4)))), *ARGUMENTS]
        )
        == 0
    )

    rows = capsys.readouterr().out.splitlines()
    assert rows[1].endswith("ratio -")  # nothing was reflected on
    assert "measured    10.00 s   predicted    10.00 s" in rows[3]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (cycle(1), "one cycle of 2 to learn from and one to predict"),
        ([line(step, seconds={"update": 1.0}) for step in (1, 2, 3, 4)], "lacks the time of sampling"),
        ([one.replace('"habits": {', '"old": {') for one in (*cycle(1), *cycle(3))], "tokens that the policy wrote"),
    ],
)
def test_a_log_that_says_too_little_is_refused(
    lines: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare_simulation.main([str(written(tmp_path, *lines)), *ARGUMENTS]) == 2
    assert said in capsys.readouterr().err
