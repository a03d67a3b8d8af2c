"""What a person sees of a run: a row a step on a terminal, a line a step elsewhere, numbers that are there."""

import io

from rich.console import Console

from rubricem_agent.cli.train import TrainScreen, describe_line
from rubricem_agent.learn.metrics import EvaluationLine, StepLine, WarningLine

SCORES = {"plan": 0.9, "research": 0.8, "review": 0.7, "answer": 0.6}


def step(number, **more):
    told = {"plan": {"tokens": 10, "entropy": 0.25, "kl": 0.0125}}
    fields = {
        "step": number,
        "encounter": "new",
        "true": SCORES,
        "judged": {**SCORES, "review": None},
        "task": {"loss": 0.1, "grad_norm": 1.0, "tokens": 10, "stages": told},
        "bank": 7,
        "habits": {"answer_words": 40, "repeated_calls": 0.0, "valid": 1.0, "policy_tokens": 900},
        "seconds": {"sample": 2.0, "update": 1.0},
    }
    return StepLine.model_validate({**fields, **more})


def shown(*lines, is_terminal):
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=140, color_system=None)
    with TrainScreen(console, 24) as screen:
        for line in lines:
            screen.show(line)
    return console.file.getvalue()


def test_elsewhere_than_on_a_terminal_a_step_is_a_line():
    # 900 tokens in 2 seconds of sampling; 2 + 1 seconds in all.
    assert shown(step(3), is_terminal=False) == (
        "step 3/24 new: true plan 0.90 research 0.80 review 0.70 answer 0.60; KL 0.0125; bank 7; utility -; "
        "450 tokens/s; 3.0 s\n"
    )


def test_on_a_terminal_the_latest_steps_are_a_table_with_truth_and_judge():
    text = shown(*(step(number) for number in range(1, 13)), is_terminal=True)

    last = text[text.rindex("step 12 of 24") :]
    assert "0.80|0.80" in last
    assert "0.70|-" in last
    rows = [line for line in last.splitlines() if "0.90|0.90" in line]
    assert len(rows) == 8


def test_a_step_without_an_update_says_so():
    assert "nothing to learn from" in describe_line(step(1, task=None), 24)


def test_an_old_line_without_habits_has_no_speed():
    assert "; 0 tokens/s;" in describe_line(step(1, habits=None), 24)


def test_an_examination_and_an_alarm_are_sentences_and_markup_is_text():
    exam = EvaluationLine(step=8, held_out={"answer": 0.5}, valid=0.96)

    text = shown(exam, WarningLine(step=8, alarm="parted by [/red] 0.2"), is_terminal=False)

    assert "step 8: held-out questions, by truth: answer 0.50; 96% valid" in text
    assert "parted by [/red] 0.2" in text
