"""What a user hands to an environment wrongly is refused at once, with what to write instead."""

import pytest

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.rewards import ScoreEach
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.tools.base import LocalToolbox
from tests.rubricem_env.env.conftest import ANSWER

QUERY = Query(question="How wide?")
WRONG = [
    ({"queries": ["How wide?"]}, r"queries\[0\] is a str; each must be a Query\. Write Query\(question='\.\.\.'\)\."),
    ({"queries": [QUERY, {"question": "How wide?"}]}, r"queries\[1\] is a dict; each must be a Query"),
    ({"queries": QUERY}, r"queries is a Query; it must be a sequence, such as \[Query\(question="),
    ({"queries": "How wide?"}, "queries is a str; it must be a sequence"),
    ({"queries": 3}, "queries is an int; it must be a sequence"),
    ({"limits": {"max_calls": 3}}, r"limits is a dict; it must be EpisodeLimits\. Write EpisodeLimits\(max_calls="),
    ({"toolbox": []}, r"toolbox is a list; a toolbox has `names` and `async call.*LocalToolbox\(tool, \.\.\.\)"),
    ({"toolbox": print}, "toolbox is a builtin_function_or_method; a toolbox has `names`"),
    (
        {"reward": "answer", "scorer": lambda trajectory: 1.0},
        r"scorer is a function; a scorer has `async score.*ScoreEach\(function\)",
    ),
    ({"prompt": "You are an agent."}, "prompt is a str; it must be a function, such as lambda query: query.question"),
    ({"prompt": None}, "prompt is None; it must be a function"),
]


@pytest.mark.parametrize("kind", [DeepResearchEnv, DeepResearchVectorEnv])
@pytest.mark.parametrize(("arguments", "sentence"), WRONG)
def test_a_part_of_another_kind_is_refused_by_name(kind, arguments, sentence):
    with pytest.raises(UsageError, match=sentence):
        kind(**arguments)


def test_parts_of_their_kinds_are_taken_and_left_out_ones_have_their_defaults():
    env = DeepResearchEnv(queries=iter([QUERY]), toolbox=LocalToolbox(), limits=EpisodeLimits(max_calls=3))
    assert (env.env_spec.queries, env.env_spec.toolbox.names, env.env_spec.limits.max_calls) == ((QUERY,), (), 3)
    plain = DeepResearchEnv()
    assert (plain.env_spec.toolbox.names, plain.env_spec.limits) == (
        ("google_search", "snippet_search"),
        EpisodeLimits(),
    )
    assert plain.env_spec.queries


def test_a_function_that_returns_a_number_in_place_of_a_judgement_is_refused():
    env = DeepResearchEnv(queries=[QUERY], reward="answer", scorer=ScoreEach(lambda trajectory: 1.0))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"ScoreEach returned a float; it returns a Judgement, such as Judgement\.of"):
        env.step(ANSWER)
    env.close()


def test_a_prompt_that_returns_no_text_is_refused():
    env = DeepResearchEnv(queries=[QUERY], prompt=lambda query: None)
    with pytest.raises(
        UsageError, match=r"prompt returned None for a query; it must return the text that reset\(\) gives"
    ):
        env.reset(seed=0)
