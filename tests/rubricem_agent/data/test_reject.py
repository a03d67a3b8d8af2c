"""Every reason for which a trace is rejected is named, and counted on the right side."""

from collections.abc import Callable

import pytest

from rubricem_agent.data.filter import count_rejections, find_rejections, over_length
from rubricem_agent.data.generate import Trace
from rubricem_env.domain.trajectory import Origin, Segment, ToolStatus

Make = Callable[..., Trace]
NO_PLAN = '<scratchpad>x</scratchpad><call_tool name="google_search">q</call_tool>'


def reasons(trace: Trace) -> set[tuple[str, bool]]:
    return {(rejection.reason, rejection.is_paper) for rejection in find_rejections(trace)}


def test_a_sound_trace_is_accepted(make_trace: Make) -> None:
    assert find_rejections(make_trace()) == ()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("</answer>", "", "missing_answer"),
        ("<state_evaluation>S_1 has it.</state_evaluation>", "", "missing_structure"),
    ],
)
def test_what_the_last_turn_lacks_is_one_of_the_papers_reasons(
    make_trace: Make, old: str, new: str, reason: str
) -> None:
    last = make_trace().trajectory.segments[3].text.replace(old, new)
    assert (reason, True) in reasons(make_trace(last=last))


def test_a_turn_that_calls_no_tool_is_the_papers_reason(make_trace: Make) -> None:
    first = make_trace().trajectory.segments[1].text.partition("<call_tool")[0]
    assert reasons(make_trace(first)) >= {("no_tool_call", True)}


def test_a_plan_without_rubric_is_the_papers_reason_and_one_without_research_plan_is_ours(make_trace: Make) -> None:
    first = make_trace().trajectory.segments[1].text
    assert reasons(make_trace(first.replace("<rubric>b</rubric>", ""))) == {("missing_structure", True)}
    assert reasons(make_trace(first.replace("<research_plan>c</research_plan>", ""))) == {
        ("missing_research_plan", False)
    }


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


def test_an_invented_citation_is_ours_and_can_be_allowed_by_number(make_trace: Make) -> None:
    trace = make_trace(last=make_trace().trajectory.segments[3].text.replace('id="S_1"', 'id="S_9"'))

    assert reasons(trace) == {("unknown_citation", False)}
    assert find_rejections(trace, max_unknown_citations=1) == ()


def test_a_thought_that_does_not_close_is_named_as_ours_beside_the_papers_malformed_structure(
    make_trace: Make,
) -> None:
    trace = make_trace(first=make_trace().trajectory.segments[1].text.replace("</scratchpad>", ""))
    assert ("unbalanced_thought", False) in reasons(trace)


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
