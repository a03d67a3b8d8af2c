"""A run's log: read as far as it is whole, followed while it is written, refused in one sentence."""

import json

import pytest

from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_records.runs.following import follow_log
from rubricem_records.runs.run_log import append_line, read_log

STAGES = ("plan", "research", "review", "answer")


def step(number, **more):
    scores = dict.fromkeys(STAGES, 0.5)
    return {"step": number, "encounter": "new", "true": scores, "judged": {**scores, "plan": None}, **more}


def evaluation(number, answer):
    return {"step": number, "held_out": {**dict.fromkeys(STAGES, 0.5), "answer": answer}, "valid": 1.0}


def write(folder, *lines, rest=""):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + rest, encoding="utf-8")


def test_lines_are_sorted_into_steps_evaluations_and_warnings(tmp_path):
    write(tmp_path, evaluation(0, 0.4), step(1), step(2), {"step": 2, "warning": "look"}, evaluation(2, 0.6))

    log = read_log(tmp_path)

    assert [line.step for line in log.steps] == [1, 2]
    assert [line.held_out["answer"] for line in log.evaluations] == [0.4, 0.6]
    assert [line.warning for line in log.warnings] == ["look"]


def test_a_half_written_last_line_is_passed_over(tmp_path):
    write(tmp_path, step(1), rest='{"step": 2, "true": {"plan": 0.5}')

    assert [line.step for line in read_log(tmp_path).steps] == [1]


def test_a_step_that_a_resumed_run_took_again_counts_once_with_its_latest_line(tmp_path):
    write(tmp_path, step(1, bank=3), step(1, bank=5))

    assert [line.bank for line in read_log(tmp_path).steps] == [5]


def test_a_folder_without_a_log_is_no_runs_folder(tmp_path):
    with pytest.raises(FileFormatError, match=r"holds no metrics\.jsonl, so it is no run's folder"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "at the object: invalid JSON"),
        ("[1]", "at the object: input should be an object"),
        ('{"step": 1}', "at encounter"),
    ],
)
def test_a_broken_line_in_the_middle_is_named_with_its_number(tmp_path, line, reason):
    write(tmp_path, step(1), rest=f"{line}\n")

    with pytest.raises(FileFormatError, match=rf"metrics\.jsonl:2 is no line of a run: {reason}"):
        read_log(tmp_path)


def test_kl_and_entropy_of_an_update_are_means_over_its_tokens(tmp_path):
    stages = {
        "plan": {"tokens": 10, "entropy": 1.0, "kl": 0.0, "loss_share": 0.5},
        "answer": {"tokens": 30, "entropy": 0.2, "kl": 0.4, "loss_share": 0.5},
    }
    write(tmp_path, step(1, task={"loss": 0.1, "grad_norm": 1.0, "tokens": 40, "stages": stages}))

    task = read_log(tmp_path).steps[0].task

    # (10 * 1.0 + 30 * 0.2) / 40 and (30 * 0.4) / 40
    assert (task.entropy, task.kl) == pytest.approx((0.4, 0.3))


def test_a_follower_gives_each_line_once_and_a_retaken_step_again(tmp_path):
    new_lines = follow_log(tmp_path)
    assert list(new_lines()) == []

    write(tmp_path, step(1), step(2), rest='{"step": 3')
    assert [line.step for line in new_lines()] == [1, 2]
    write(tmp_path, step(1), step(2, bank=1))

    assert [(line.step, line.bank) for line in new_lines()] == [(2, 1)]


def test_a_follower_that_is_interrupted_at_a_line_gets_it_again(tmp_path):
    new_lines = follow_log(tmp_path)
    write(tmp_path, step(1), step(2))

    lines = new_lines()
    assert [next(lines).step, next(lines).step] == [1, 2]
    lines.close()  # what an interrupt in the loop over them does

    assert [line.step for line in new_lines()] == [2]


def test_a_full_disk_is_one_sentence_with_the_way_out(tmp_path):
    full = tmp_path / "metrics.jsonl"
    full.symlink_to("/dev/full")

    with pytest.raises(UsageError, match=r"No space left on device\. Make room; the same command resumes"):
        append_line(full, step(1))
