"""Lines of progress where no bar is drawn."""

import time

import pytest

from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.progress import MARK, SECONDS, counted, progress_lines


def wait_for(said, capsys):
    text, deadline = "", time.monotonic() + 30
    while said not in text:
        assert time.monotonic() < deadline, text
        time.sleep(0.01)
        text += capsys.readouterr().err
    return text


def test_a_line_is_written_while_the_block_blocks_and_none_afterwards(capsys):
    with progress_lines(lambda elapsed: f"reading; {elapsed:.0f} s", seconds=0.02):
        assert wait_for("reading; 0 s\n", capsys).startswith(MARK)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_what_says_nothing_and_what_is_over_at_once_writes_nothing(capsys):
    with progress_lines(lambda elapsed: "", seconds=0.01):
        time.sleep(0.1)
    with counted("attempts", 2) as count:
        count("one")
    assert SECONDS >= 5
    assert capsys.readouterr().err == ""


def test_a_bar_that_cannot_be_drawn_is_a_line_with_its_count(capsys):
    with Terminal(line_seconds=0.02).progress() as bars:
        answers = bars.add_task("answers [dim]x[/dim]", total=3)
        bars.add_task("opening", total=None)
        bars.advance(answers, 2)
        wait_for("... answers x 2 of 3; opening; 0 s\n", capsys)


@pytest.mark.parametrize("form", [{"as_json": True}, {"is_quiet": True}])
def test_programs_get_no_line(form, capsys):
    with Terminal(line_seconds=0.01, **form).bar("answers", 3):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
