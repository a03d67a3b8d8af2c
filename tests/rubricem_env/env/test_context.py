"""A bounded view of an episode of any length: when it folds, how far, and that the record keeps everything."""

import pytest
from hypothesis import given, settings, strategies as st

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import (
    Query,
    Snippet,
    ToolCall,
    ToolResult,
    ToolStatus,
    dump_trajectory,
    load_trajectory,
)
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Continue, Episode, EpisodeLimits
from rubricem_env.env.view import views_of
from rubricem_env.tools.render import estimate_tokens
from tests.rubricem_env.env.conftest import ANSWER, PLAN, REVIEW

QUERY = Query(question="How wide is the Tall Fox?")
LONG = EpisodeLimits(max_calls=100, max_turns=110, max_tokens=1_000_000)
SMALL = ContextLimits(fold_at=1_500, fold_to=900, keep=2)


def found(number, snippets=3, words=60):
    return ToolResult.found(Snippet(title=f"Page {number}.{index}", text="word " * words) for index in range(snippets))


def turn(number):
    weighed = f"<think>thought {number}</think><state_evaluation>Fact {number}.</state_evaluation>" if number else PLAN
    return f'{weighed}<call_tool name="google_search">query {number}</call_tool>'


def play(calls, *, context=SMALL, write=turn, answer=found, count=estimate_tokens, **options):
    """An episode, and the views that the policy had before each turn."""
    episode = Episode(QUERY, limits=LONG, context=context, count_tokens=count, **options)
    views = []
    for number in range(calls):
        views.append(episode.view)
        reply = episode.emit(write(number))
        if isinstance(reply, ToolCall):
            episode.observe(answer(number))
    return episode, views


def size(view, system=""):
    parts = [system, view.prompt, *(part for turn in view.turns for part in (turn.text, turn.observation))]
    return sum(map(estimate_tokens, parts))


def test_nothing_is_folded_by_default_and_the_view_is_the_record():
    episode, views = play(30, context=None)
    assert episode.folds == ()
    assert views[-1].text == "".join(segment.text for segment in episode.trajectory.segments[:-2])
    assert "folds" not in dump_trajectory(episode.trajectory)


def test_a_limit_that_is_never_reached_leaves_the_same_bytes():
    folded, _ = play(5, context=ContextLimits(fold_at=100_000))
    assert dump_trajectory(folded.trajectory) == dump_trajectory(play(5, context=None)[0].trajectory)


def test_a_hundred_calls_are_read_in_eight_thousand_tokens_and_the_record_keeps_them_all():
    system = "rule " * 400
    episode, views = play(100, context=ContextLimits(fold_at=8_000, fold_to=4_000), system=system)
    assert episode.calls_used == 100
    assert max(size(view, system) for view in views) <= 8_000
    assert len(episode.trajectory.segments) == 201
    # 100 observations of about 260 tokens: more than three times what is ever read at once.
    assert episode.tokens_used > 24_000
    # What each turn weighed is short, so all of it is still read.
    assert all(f"<state_evaluation>Fact {number}.</state_evaluation>" in views[-1].text for number in range(1, 99))


def test_a_fold_goes_from_fold_at_down_to_fold_to():
    episode, views = play(40)
    after = {fold.turn for fold in episode.folds}
    assert len(after) > 3
    for number, view in enumerate(views):
        assert size(view) <= (900 if number in after else 1_500)


def test_a_folded_view_replays_from_the_record_alone():
    episode, views = play(40)
    record = load_trajectory(dump_trajectory(episode.trajectory))
    assert record == episode.trajectory
    assert list(views_of(record)) == views


def test_the_last_results_stay_whole_with_the_turns_around_them():
    episode, _ = play(20)
    assert episode.folds[-1].whole == 2
    at = episode.folds[-1].turn
    whole = [turn.number for turn in episode.view.turns if turn.is_whole]
    assert whole == list(range(at - 1, 21))
    segments = episode.trajectory.segments
    shown = {turn.number: turn for turn in episode.view.turns}
    assert (shown[at].text, shown[at].observation) == (segments[2 * at - 1].text, segments[2 * at].text)


def test_an_older_result_is_a_line_of_ids_and_titles_after_its_call():
    # 3 of 4 results of 260 tokens fit into 1,000; the fourth folds the first two.
    episode, _ = play(4, context=ContextLimits(fold_at=1_000, fold_to=900, keep=2))
    first, second = episode.view.turns[:2]
    assert first.text == PLAN.removeprefix("<think>t</think>") + '<call_tool name="google_search">query 0</call_tool>'
    assert first.observation == (
        '<tool_output>\nFolded: S_1 "Page 0.0", S_2 "Page 0.1", S_3 "Page 0.2".\n</tool_output>'
    )
    assert second.text == (
        '<state_evaluation>Fact 1.</state_evaluation><call_tool name="google_search">query 1</call_tool>'
    )
    assert "thought 1" not in episode.view.text


def test_titles_go_first_then_calls_then_what_was_weighed_always_of_the_oldest():
    folds = play(100, context=ContextLimits(fold_at=1_500, fold_to=1_200, keep=2))[0].folds
    for fold in folds:
        older = fold.turn - fold.whole
        if fold.weighed or fold.left_out:
            assert fold.left_out + fold.weighed + fold.untitled == older  # No title is left.
        if fold.left_out:
            assert fold.untitled == 0  # No call is left.
    assert [fold for fold in folds if 0 < fold.untitled < fold.turn - fold.whole and not fold.weighed]
    assert [fold for fold in folds if fold.weighed and fold.untitled]
    assert folds[-1].left_out > 0


def test_what_is_left_out_is_counted():
    episode, _ = play(60)
    fold = episode.folds[-1]
    lead = episode.view.turns[0]
    assert lead.number == 0
    assert lead.observation == (
        f"<tool_output>\nFolded: earlier calls that are left out with their results: {fold.left_out + fold.weighed}; "
        f"with what they led to: the first {fold.left_out}.\n</tool_output>"
    )
    assert lead.text.startswith("<structured_plan><deep_analysis>a</deep_analysis>")


def test_the_plan_is_read_in_its_latest_revision():
    def write(number):
        revised = "<structured_plan><rubric>sharper</rubric></structured_plan>" if number == 10 else ""
        return revised + turn(number)

    episode, _ = play(30, write=write)
    assert episode.view.text.count("<structured_plan>") == 1
    assert (
        "<structured_plan><deep_analysis>a</deep_analysis><rubric>sharper</rubric><research_plan>p</research_plan>"
        "</structured_plan>"
    ) in episode.view.text


def test_fewer_results_stay_whole_where_they_do_not_fit():
    episode, views = play(12, context=ContextLimits(fold_at=1_500, fold_to=700, keep=5))
    assert {fold.whole for fold in episode.folds} <= {0, 1, 2}
    assert max(map(size, views)) <= 1_500


def test_the_latest_result_is_whole_even_where_its_turn_is_not():
    def write(number):
        return f"<think>{'so ' * 900}</think>" + turn(number)

    episode, views = play(6, write=write)
    assert all(fold.whole == 0 for fold in episode.folds)
    assert episode.view.turns[-1].observation == episode.trajectory.segments[-1].text
    assert max(map(size, views)) <= 1_500


def test_blocks_of_any_length_are_cut_where_nothing_else_is_left():
    def write(number):
        weighed = f"<state_evaluation>{'and so on ' * 2_000}</state_evaluation>"
        return (PLAN.replace("<rubric>r", f"<rubric>{'much ' * 2_000}") if number == 0 else weighed) + turn(number)[
            -60:
        ]

    episode, views = play(6, write=write)
    assert all(fold.clip for fold in episode.folds)
    assert " [cut]</rubric>" in episode.view.text
    assert max(map(size, views)) <= 1_500
    assert list(views_of(episode.trajectory)) == views


def test_the_episode_ends_by_its_limits_on_the_record():
    limits = EpisodeLimits(max_calls=100, max_turns=110, max_tokens=3_000)
    episode = Episode(QUERY, limits=limits, context=SMALL)
    number = 0
    while not episode.is_over:
        if isinstance(episode.emit(turn(number)), ToolCall):
            episode.observe(found(number))
        number += 1
    assert episode.ending.value == "token_budget"
    assert 3_000 <= episode.tokens_used < 3_500


def test_an_answer_may_cite_what_is_folded():
    episode, _ = play(30)
    episode.emit(REVIEW + ANSWER.replace("60 m", '<cite id="S_1">60 m</cite>'))
    assert episode.read().citations.known == ("S_1",)


def test_a_notice_leaves_nothing_behind_once_it_is_folded():
    episode, _ = play(30, write=lambda number: "<think>hm</think>" if number == 3 else turn(number))
    assert "Your turn ended without an action" not in episode.view.text
    assert list(views_of(episode.trajectory))[-1].turns[0].text.startswith("<structured_plan>")


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (ToolResult(status=ToolStatus.TIMEOUT, message="x"), "the call failed (timeout)."),
        (ToolResult(status=ToolStatus.EMPTY), "nothing was found."),
        (ToolResult(status=ToolStatus.OK, summary="60 m"), "a result without snippets."),
    ],
)
def test_a_result_without_snippets_says_how_the_call_ended(result, line):
    context = ContextLimits(fold_at=620, fold_to=600, keep=1)
    episode, _ = play(4, context=context, answer=lambda number: found(number) if number else result)
    assert f"Folded: {line}" in episode.view.turns[0].observation


def test_the_calls_of_an_invalid_turn_are_folded_with_a_notice():
    context = ContextLimits(fold_at=600, fold_to=590, keep=1)
    episode, _ = play(
        4, context=context, write=lambda number: turn(number) if number else PLAN + "<call_tool>x</call_tool>"
    )
    assert "Folded: a notice." in episode.view.turns[0].observation


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"fold_at": 100, "fold_to": 100}, "fold_to is 100 and fold_at is 100; a fold needs to make the view shorter"),
        ({"fold_at": 8_000}, "fold_to is 8192 and fold_at is 8000"),
        ({"fold_at": 9_000, "keep": 0}, "keep"),
        ({"fold_at": 0}, "fold_at"),
        ({"fold_to": 4_000}, "fold_to is set and fold_at is not, so nothing is folded. Set fold_at"),
        ({"keep": 5}, "keep is set and fold_at is not"),
        ({"fold_from": 1}, "no setting 'fold_from'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ConfigError) as refused:
        ContextLimits(**settings)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("ContextLimits")


def test_a_prompt_that_leaves_no_room_is_refused():
    with pytest.raises(ConfigError, match=r"the prompt has 1007 tokens and context\.fold_to is 900"):
        Episode(QUERY, context=SMALL, system="rule" * 1_000)


WORDS = st.text('abc <>/"&\n\u2028<', max_size=60)
BLOCKS = st.one_of(
    st.just(PLAN),
    st.builds("<think>{}</think>".format, WORDS),
    st.builds("<state_evaluation>{}</state_evaluation>".format, WORDS),
    st.builds("<structured_plan><rubric>{}</rubric></structured_plan>".format, WORDS),
    st.builds("<structured_plan>{}</structured_plan>".format, WORDS),
    st.just(REVIEW),
    st.builds("<state_evaluation>{}".format, WORDS),
    st.just("<tool_output>self-written</tool_output>"),
    WORDS,
)
TURN = st.builds(
    "{}{}".format,
    st.lists(BLOCKS, max_size=4).map("".join),
    st.one_of(st.builds('<call_tool name="google_search">{}</call_tool>'.format, WORDS), st.just("")),
)


@pytest.mark.no_cover
@settings(max_examples=100, deadline=None)
@given(st.lists(TURN, min_size=1, max_size=40), st.integers(1, 6), st.integers(200, 1_200), st.integers(0, 60))
def test_whatever_is_written_the_view_is_bounded_and_replays_byte_for_byte(turns, keep, fold_to, words):
    context = ContextLimits(fold_at=fold_to + 300, fold_to=fold_to, keep=keep)
    limits = LONG.model_copy(update={"max_idle_turns": 1_000})
    episode = Episode(QUERY, limits=limits, context=context)
    views = []
    reply = Continue("")
    for number, text in enumerate(turns):
        views.append(episode.view)
        reply = episode.emit(text)
        if isinstance(reply, ToolCall):
            reply = episode.observe(found(number, words=words))
        latest = estimate_tokens(reply.observation)
        # The latest result is always whole, and an empty plan and a few tags may stand beside it.
        assert size(episode.view) <= max(fold_to + 300, latest + 500)
    record = load_trajectory(dump_trajectory(episode.trajectory))
    assert list(views_of(record)) == views
