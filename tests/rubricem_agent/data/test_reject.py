"""Every reason for which a trace is rejected is named, and counted on the right side."""

from collections.abc import Callable

import pytest

from rubricem_agent.data.base import Trace
from rubricem_agent.data.filter import count_rejections, find_rejections, over_length
from rubricem_env.domain.trajectory import Origin, Segment, ToolStatus
from tests.rubricem_agent.data.conftest import FIRST, LAST

Make = Callable[..., Trace]
NO_PLAN = '<scratchpad>x</scratchpad><call_tool name="google_search">q</call_tool>'


def reasons(trace: Trace) -> set[tuple[str, bool]]:
    return {(rejection.reason, rejection.is_paper) for rejection in find_rejections(trace)}


@pytest.mark.parametrize(
    ("old", "new", "reason", "is_paper"),
    [
        ("</answer>", "", "missing_answer", True),
        ("<state_evaluation>S_1 has it.</state_evaluation>", "", "missing_structure", True),
        (FIRST[FIRST.index("<call_tool") :], "", "no_tool_call", True),
        ("<rubric>b</rubric>", "", "missing_structure", True),
        ("<research_plan>c</research_plan>", "", "missing_research_plan", False),
        ("Two facts.</scratchpad>", "Two facts.", "unbalanced_thought", False),
        ('id="S_1">It', 'id="S_9">It', "unknown_citation", False),
    ],
)
def test_a_trace_that_lacks_something_is_rejected_for_the_papers_reason_or_ours(
    make_trace: Make, old: str, new: str, reason: str, is_paper: bool
) -> None:
    assert reasons(make_trace()) == set()
    assert (reason, is_paper) in reasons(make_trace(FIRST.replace(old, new), LAST.replace(old, new)))


def test_two_tool_errors_in_a_row_are_rejected_and_one_is_not(make_trace: Make) -> None:
    failed = make_trace(status=ToolStatus.ERROR)
    prompt, first, shown, last = failed.trajectory.segments
    again = Segment(
        origin=Origin.POLICY,
        text="<think>x</think><state_evaluation>x</state_evaluation>"
        '<call_tool name="google_search">Calm Bridge</call_tool>',
    )
    twice = failed.trajectory.model_copy(update={"segments": (prompt, first, shown, again, shown, last)})

    assert reasons(failed) == set()
    assert reasons(failed._replace(trajectory=twice)) == {("consecutive_tool_errors", True)}


def test_invented_citations_can_be_allowed_by_number(make_trace: Make) -> None:
    trace = make_trace(last=LAST.replace('id="S_1"', 'id="S_9"'))
    assert find_rejections(trace, max_unknown_citations=1) == ()


def test_a_failed_teacher_is_not_blamed_for_the_missing_answer(make_trace: Make) -> None:
    assert reasons(make_trace()._replace(failure="the server is down")) == {("teacher_failed", False)}


def test_a_flat_trace_owes_no_plan_and_no_review(make_trace: Make) -> None:
    flat = make_trace(NO_PLAN, '<scratchpad>x</scratchpad><answer><cite id="S_1">120 m</cite></answer>')

    assert find_rejections(flat, flat=True) == ()
    assert ("missing_structure", True) in reasons(flat)


def test_the_report_counts_traces_not_reasons_and_puts_the_papers_first(make_trace: Make) -> None:
    two_reasons = find_rejections(make_trace(NO_PLAN, "<scratchpad>x</scratchpad><answer>y</answer>"))
    report = count_rejections([(), two_reasons, (over_length(20_000, 16_384),)])

    assert (report.traces, report.accepted, report.rejected, report.by_paper) == (3, 1, 2, 1)
    counted = [(reason.reason, reason.named, reason.alone) for reason in report.reasons]
    assert counted == [("missing_structure", 1, 0), ("missing_review", 1, 0), ("over_length", 1, 1)]
    assert report.reasons[-1].example == "the sample has 20,000 tokens; training takes up to 16,384."
