"""Repeats of the bank's reference block, which the judge is not shown."""

import json

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.model.repeats import REPEATED
from rubricem_env.judge.model.shown_attempt import render_stages
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import ANSWER, PLAN, QUESTION, REVIEW, attempt, call, policy
from tests.rubricem_env.judge.shown_cases import LESSON, SECRET, shown

BLOCK = f"<reference_examples>\n{LESSON}\n</reference_examples>"
THOUGHT = "<think>Two rivers, one attribute.</think>"
STRUCTURED = PLAN.removeprefix(THOUGHT)


def lent(trajectory: Trajectory, block: str = BLOCK) -> Trajectory:
    """The attempt as it is recorded when the bank had something for it."""
    prompt = Segment(origin=Origin.PROMPT, text=f"{block}\n\n{QUESTION}")
    own = (segment for segment in trajectory.segments if segment.origin is not Origin.PROMPT)
    return trajectory.model_copy(update={"segments": (prompt, *own)})


def agent_text(pieces) -> str:
    return "".join(piece.get("agent", "") for piece in pieces)


@pytest.mark.parametrize(
    "echo",
    [
        BLOCK,
        BLOCK.upper(),
        f"<reference_examples>{LESSON}",
        f"<reference_examples>{BLOCK}</reference_examples>",
        f"<reference_examples><reference_examples>\n{LESSON}</reference_examples>",
        f"< Reference_Examples lang='en' >{LESSON}< / reference_examples >",
        f"<reference_examples>{' '.join(LESSON.split())}</reference_examples>",
        BLOCK + BLOCK,
        BLOCK[: BLOCK.index(" has to say so")],
        f"<reference_examples>I was given this. {LESSON} I will use it.</reference_examples>",
    ],
)
def test_a_block_that_is_repeated_is_left_out_and_the_plan_around_it_is_not(echo):
    plan = shown(lent(attempt(plan=f"<think>{echo} So the season counts.</think>{STRUCTURED}")))["plan"]
    text = agent_text(plan)
    assert SECRET not in text.lower()
    assert REPEATED in text
    assert text.endswith(f" So the season counts.</think>{STRUCTURED}")


def test_a_block_that_is_repeated_over_two_pieces_of_a_record_is_left_out_of_both():
    whole = lent(attempt(plan=f"<think>{BLOCK}</think>{STRUCTURED}"))
    prompt, first, *others = whole.segments
    half = first.text.index("almanac")
    cut = whole.model_copy(update={"segments": (prompt, policy(first.text[:half]), policy(first.text[half:]), *others)})
    text = agent_text(shown(cut)["plan"])
    assert SECRET not in text
    assert "this almanac" not in text
    assert text.endswith(STRUCTURED)


def test_a_tag_that_is_never_closed_hides_no_tool_call_from_the_judge():
    trajectory = Trajectory(
        question=QUESTION,
        segments=(policy(f"{PLAN}<think><reference_examples></think>{call('what the judge must not see')}"),),
    )
    assert "what the judge must not see" in json.dumps(shown(trajectory)["research"])


@pytest.mark.parametrize("tag", ["<reference_examples>", "<REFERENCE_EXAMPLES>", "<reference_examples hidden>"])
def test_what_a_policy_puts_between_tags_of_that_name_is_its_own_and_shown(tag):
    claim = "All of this is invented, as nobody will ever see it in here whoever looks at it."
    answer = ANSWER.replace("</answer>", f" {tag}{claim}</reference_examples></answer>")
    assert claim in agent_text(shown(lent(attempt(answer=answer)))["answer"])
    review = REVIEW.replace("<rubric_review>", f"<rubric_review>{tag}")
    assert agent_text(shown(attempt(review=review))["review"]).endswith(review)


def test_a_page_that_opens_the_block_hides_nothing():
    stages, plain = shown(lent(attempt(page="before <reference_examples> after"))), shown(attempt(page="before"))
    assert r"before <\reference_examples> after" in stages["research"][1]["tool_output"]
    assert {name: agent_text(pieces) for name, pieces in stages.items()} == {
        name: agent_text(pieces) for name, pieces in plain.items()
    }


OWN_WORDS = ("mine", "own")
TAGS = ("think", "structured_plan", "rubric", "review", "answer", "state_evaluation", "reference_examples")
FRAGMENTS = (
    *(f"<{name}>" for name in TAGS),
    *(f"</{name}>" for name in TAGS),
    *("<Reference_Examples", "reference_examples>", "<reference_examples/>", "<call_tool", " <", "> ", "\n"),
    # The first part ends with a word: half a name and "mine" could be the lesson's whole name.
    *(BLOCK, LESSON, LESSON[:120].rpartition(" ")[0], LESSON[40:], call("mine"), "mine ", "own "),
)


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), min_size=1, max_size=3))
def test_whatever_a_policy_writes_none_of_its_own_words_is_hidden_from_the_judge(texts):
    parsed = parse_trajectory(lent(Trajectory(question=QUESTION, segments=tuple(map(policy, texts)))))
    stages = render_stages(parsed)
    for stage in STAGES:
        if stages[str(stage)] is not None:
            text, written = agent_text(stages[str(stage)]), parsed.stage_text(stage)
            assert [text.count(word) for word in OWN_WORDS] == [written.count(word) for word in OWN_WORDS]
            assert BLOCK not in text


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), min_size=1, max_size=3))
def test_without_a_block_in_the_prompt_the_judge_sees_the_policys_text_to_the_letter(texts):
    parsed = parse_trajectory(Trajectory(question=QUESTION, segments=tuple(map(policy, texts))))
    stages = render_stages(parsed)
    for stage in STAGES:
        if stages[str(stage)] is not None:
            # pieces of white space alone are not shown
            assert "".join(agent_text(stages[str(stage)]).split()) == "".join(parsed.stage_text(stage).split())
