"""The columns of a run against the same rows in plain Python."""

from hypothesis import given, strategies as st

from rubricem_agent.learn.record import RolloutHead
from rubricem_agent.viewer.records import RolloutFilter, RolloutTable
from rubricem_env.domain.base import Stage

SCORE = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0])
HEAD = st.builds(
    RolloutHead,
    at=st.just(0),
    size=st.just(1),
    step=st.integers(1, 4),
    place=st.integers(0, 2),
    attempt=st.integers(0, 7),
    scores=st.tuples(SCORE, SCORE, SCORE, SCORE),
    true=st.just((None,) * 4),
    valid=st.booleans(),
    complete=st.booleans(),
    ending=st.sampled_from(["", "answered", "stalled"]),
    calls=st.integers(0, 9),
    tokens=st.integers(0, 9),
    violations=st.integers(0, 9),
)


def table_of(heads):
    table = RolloutTable()
    for start in range(0, len(heads), 50):
        part = heads[start : start + 50]
        table.append(part, [head.place for head in part])
    return table


@given(
    st.lists(HEAD, max_size=140), st.integers(1, 4), st.sampled_from(["answered", "stalled", "never"]), st.booleans()
)
def test_a_filter_finds_the_rows_that_a_loop_finds(heads, step, ending, valid):
    wanted = RolloutFilter(step_from=step, ending=ending, valid=valid, stage=Stage.REVIEW, score_from=0.25, sort="best")

    found = table_of(heads).select(wanted).tolist()

    passing = [
        number
        for number, head in enumerate(heads)
        if head.step >= step and head.ending == ending and head.valid is valid and (head.scores[2] or 0) >= 0.25
    ]
    assert sorted(found) == passing
    scores = [heads[number].scores[2] for number in found]
    assert scores == sorted(scores, reverse=True)
