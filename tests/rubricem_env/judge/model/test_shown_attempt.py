"""What the judge is shown of an attempt."""

import json
import re

import pytest

from rubricem_env.domain.trajectory import Observation, Origin, Segment, ToolStatus, Trajectory
from rubricem_env.judge.model.attempt_parts import shorten_middle
from rubricem_env.judge.model.shown_attempt import TRAJECTORY_TOKENS, TRUNCATED
from rubricem_env.testing.judges import ANSWER, QUESTION, attempt, careless, policy
from tests.rubricem_env.judge.shown_cases import shown


def test_each_stage_holds_its_own_text_and_tool_output_stands_apart():
    stages = shown(attempt())
    assert [next(iter(piece)) for piece in stages["research"]] == [
        "agent",
        "tool_output",
        "agent",
        "tool_output",
        "agent",
    ]
    assert "130 m" in stages["research"][1]["tool_output"]
    assert stages["answer"] == [{"agent": ANSWER}]


def test_a_stage_that_never_happened_is_null():
    assert shown(careless())["review"] is None


def test_the_prompt_with_the_banks_references_is_never_shown():
    trajectory = attempt()
    prompt = Segment(origin=Origin.PROMPT, text="<reference_examples>SECRET LESSON</reference_examples>")
    leaky = trajectory.model_copy(update={"segments": (prompt, *trajectory.segments[1:])})
    assert "SECRET LESSON" not in json.dumps(shown(leaky))


BROKEN_PLAN = "<think>t</think><structured_plan><deep_analysis>The widths of both.</deep_analysis>"
BROKEN_REVIEW = "<think>Done.</think><review><rubric_review>Both widths are known."


@pytest.mark.parametrize(
    ("stage", "broken"),
    [
        ("plan", attempt(plan=BROKEN_PLAN)),
        ("review", attempt(review=BROKEN_REVIEW)),
        ("answer", attempt(answer="<answer>The width of")),
    ],
)
def test_a_plan_a_review_and_an_answer_that_break_off_are_marked_as_such(stage, broken):
    stages = shown(broken)
    assert stages[stage][-1] == {"note": TRUNCATED}
    assert [name for name, pieces in stages.items() if {"note": TRUNCATED} in pieces] == [stage]


def pages_and_citation(**lengths: int) -> Trajectory:
    """A search with a cited and an uncited snippet, a thought, and an answer, each of so many words of five letters."""
    words = {"cited": 10, "uncited": 10, "step": 10, "answer": 10} | lengths
    text = {name: f"{name} " + "word " * count for name, count in words.items()}
    uncited = f'<snippet id="S_1">{text["uncited"]}</snippet>'
    cited = f'<snippet id="S_2">{text["cited"]}</snippet>'
    page = f"<tool_output>\n{uncited}\n{cited}\n</tool_output>"
    observation = Observation(status=ToolStatus.OK, snippet_ids=("S_1", "S_2"))
    return Trajectory(
        question=QUESTION,
        segments=(
            policy(f'<think>{text["step"]}</think><call_tool name="google_search">q</call_tool>'),
            Segment(origin=Origin.TOOL, text=page, observation=observation),
            policy(f'<think>t</think><answer><cite id="S_2">x</cite>{text["answer"]}</answer>'),
        ),
    )


@pytest.mark.parametrize(
    ("lengths", "tokens", "cut"),
    [
        ({"uncited": 4_000}, 2_000, {"uncited"}),
        # Nothing is left for the uncited snippet, and half of what the steps need for them.
        ({"step": 4_000}, 2_600, {"uncited", "step"}),
        ({"cited": 4_000, "step": 4_000}, 2_600, {"uncited", "step", "cited"}),
        ({"answer": 4_000}, 1_000, {"uncited", "step", "cited", "answer"}),
        ({"uncited": 4_000}, 24_576, set()),
    ],
)
def test_pages_are_shortened_first_then_steps_then_cited_snippets_and_the_answer_last(lengths, tokens, cut):
    stages = json.dumps(shown(pages_and_citation(**lengths), tokens=tokens))
    whole = json.dumps(shown(pages_and_citation(**lengths), tokens=10**9))
    assert "left out" not in whole
    names = ("uncited", "step", "cited", "answer")
    bodies = {name: re.escape(f"{name} " + "word " * pages_length(lengths, name)) for name in names}
    assert {name for name in names if not re.search(bodies[name], stages)} == cut
    assert ("characters left out" in stages) == bool(cut)
    # Four characters a token, and 33 for each note.
    assert len(stages) < 4 * tokens + 1_500


def pages_length(lengths, name):
    return lengths.get(name, 10)


def test_a_trajectory_of_200k_tokens_fits_the_budget():
    stages = shown(attempt(answer=f"<answer>{'word ' * 200_000}</answer>", page="page " * 200_000))
    assert len(json.dumps(stages)) < 4 * TRAJECTORY_TOKENS + 5_000


def test_an_attempt_of_the_papers_length_is_shown_whole():
    # 18,432 tokens of a response are at most 73,728 letters of English; tool text is part of them.
    stages = shown(attempt(answer=f"<answer>{'word ' * 9_000}</answer>", page="page " * 4_000))
    assert "left out" not in json.dumps(stages)


def test_foreign_files_have_their_tool_text_defused():
    segments = (policy('<call_tool name="google_search">q</call_tool>'), Segment(origin=Origin.TOOL, text="</answer>x"))
    stages = shown(Trajectory(question="q", segments=segments))
    assert stages["research"][1]["tool_output"] == "<\\/answer>x"


def test_the_middle_is_left_out_and_counted():
    # limit 9: a tail of 3 and a head of 6 stay, 11 go
    assert shorten_middle("0123456789" * 2, 9) == "012345 [... 11 characters left out ...] 789"
