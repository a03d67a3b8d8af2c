"""The trajectory file: written in one form, read in all of them, refused with a sentence."""

import json

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import (
    AnswerFormat,
    Ending,
    Fold,
    Observation,
    Origin,
    Segment,
    ToolCall,
    ToolStatus,
    Trajectory,
    dump_trajectory,
    load_trajectory,
    query_key,
)

text = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
calls = st.builds(ToolCall, name=text, query=text, parameters=st.lists(st.tuples(text, text), max_size=2).map(tuple))
observations = st.builds(
    Observation,
    status=st.none() | st.sampled_from(ToolStatus),
    call=st.none() | calls,
    snippet_ids=st.lists(text, max_size=3).map(tuple),
)
segments = st.builds(Segment, origin=st.sampled_from(Origin), text=text, cut=text, observation=st.none() | observations)
trajectories = st.builds(
    Trajectory,
    question=text,
    answer_format=st.sampled_from(AnswerFormat),
    segments=st.lists(segments, max_size=4).map(tuple),
    ending=st.none() | st.sampled_from(Ending),
    seed=st.none() | st.integers(0, 2**31),
)


@given(trajectories)
def test_what_is_written_reads_back_equal_and_writes_the_same_bytes(trajectory):
    written = dump_trajectory(trajectory)
    again = load_trajectory(written)
    assert again == trajectory
    assert dump_trajectory(again).encode() == written.encode()


def test_a_bare_file_without_a_version_is_read():
    bare = '{"question": "q", "segments": [{"origin": "policy", "text": "hi"}, {"origin": "tool", "text": "x"}]}'
    trajectory = load_trajectory(bare)
    assert (trajectory.policy_text, trajectory.query_key) == ("hi", query_key(" q "))
    assert trajectory.ending is None


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("{", "f.json is not JSON"),
        ("[" * 100_000, "f.json is not JSON"),
        ("[]", "holds a JSON list; a trajectory is an object"),
        ('{"version": 2}', "of version 2; this release reads up to 1"),
        ('{"version": "1"}', "has the version '1'"),
        ('{"version": true}', "has the version True"),
        ('{"version": -1}', "has the version -1"),
        ('{"question": "q"}', "at segments: field required"),
        ('{"question": "q", "segments": [{"origin": "user", "text": ""}]}', "at segments.0.origin: input should be"),
        ('{"question": "q", "segments": [], "colour": 1}', "at colour: extra inputs are not permitted"),
        ('{"question": "q", "segments": 3}', "at segments: "),
    ],
)
def test_a_file_that_breaks_the_format_is_refused_with_its_place(written, sentence):
    with pytest.raises(FileFormatError) as caught:
        load_trajectory(written, "f.json")
    assert sentence in str(caught.value)


def test_a_thought_is_kept_where_there_is_one_and_takes_no_place_where_there_is_none():
    segments = (Segment(origin=Origin.POLICY, text="a", thought="Hm."), Segment(origin=Origin.POLICY, text="b"))
    trajectory = Trajectory(question="Q?", segments=segments)
    written = dump_trajectory(trajectory)
    assert load_trajectory(written) == trajectory
    assert ["thought" in segment for segment in json.loads(written)["segments"]] == [True, False]


FOLDED = Trajectory(
    question="q",
    segments=(Segment(origin=Origin.POLICY, text="a"), Segment(origin=Origin.TOOL, text="b")) * 3,
    folds=(Fold(turn=1, whole=1), Fold(turn=3, left_out=1, untitled=1, whole=1)),
)


def test_folds_are_kept_where_there_are_some_and_take_no_place_where_there_are_none():
    assert load_trajectory(dump_trajectory(FOLDED)) == FOLDED
    assert '"folds"' not in dump_trajectory(FOLDED.model_copy(update={"folds": ()}))


@pytest.mark.parametrize(
    ("folds", "sentence"),
    [
        (
            [{"turn": 1, "left_out": 1, "whole": 1}],
            "a fold after turn 1 names 2 turns; they are at most those before it",
        ),
        ([{"turn": 4}], "the folds come after turns [4]; the record has 3 turns, and folds rise"),
        ([{"turn": 2}, {"turn": 2}], "the folds come after turns [2, 2]"),
        ([{"turn": 0}], "folds"),
    ],
)
def test_folds_that_do_not_fit_the_record_are_refused(folds, sentence):
    written = json.loads(dump_trajectory(FOLDED)) | {"folds": folds}
    with pytest.raises(FileFormatError) as refused:
        load_trajectory(json.dumps(written))
    assert sentence in str(refused.value)
