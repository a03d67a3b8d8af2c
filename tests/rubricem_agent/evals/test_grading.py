"""Questions about one answer, as they are before any judge is asked."""

import pytest

from rubricem_agent.evals.grading import GradingQuestion
from rubricem_agent.evals.reply_parsing import CUT, Unparsed
from rubricem_records.evaluations.logs import CutReply


def test_a_question_is_asked_once_unless_it_says_otherwise_so_that_pages_are_read():
    assert GradingQuestion("page https://a.example", "https://a.example", is_page=True).tries == 1


def whole_number(reply):
    return int(reply) if reply.isdigit() else Unparsed(f"{reply} is none")


def first_number(reply):
    return int(reply[0]) if reply[0].isdigit() else Unparsed("it begins with none")


@pytest.mark.parametrize(
    ("reply", "official", "differs"), [("2", 2, False), ("23", 2, True), ("2 of 3", 2, True), (CutReply("2"), 2, True)]
)
def test_the_official_parse_grades_and_where_ours_reads_another_verdict_is_told(reply, official, differs):
    question = GradingQuestion("k", "p", parse=whole_number, official_parse=first_number)
    assert question.read(reply) == (official, differs)
    assert question.accepts(reply)


def test_two_refusals_agree_and_accept_nothing():
    question = GradingQuestion("k", "p", parse=whole_number, official_parse=first_number)
    assert question.read("x").differs is False
    assert not question.accepts("x")


def test_a_reply_that_was_cut_says_nothing_to_our_parse():
    assert GradingQuestion("k", "p", parse=whole_number).read(CutReply("2")) == (CUT, False)
