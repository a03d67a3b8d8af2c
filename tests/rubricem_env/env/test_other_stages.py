"""The environment plays other stage sets: without a tool, paid by stage, shown stage by stage."""

import numpy as np
import pytest

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.env.wrappers import EmissionChecker, EmissionWarning
from rubricem_env.judge.rules.rules_scorer import RulesScorer
from tests.scaffolds import WRITING

BRIEF = Query(question="Write a letter that declines the invitation to the harvest concert.")
AIMS = "a letter that declines the invitation to the concert"
OUTLINE = f"<think>t</think><outline><aims>{AIMS}</aims><order>o</order></outline>"
REST = (
    "<think>t</think><draft>This letter declines your invitation to the harvest concert.</draft><revision><faults>f"
    "</faults><changes>c</changes></revision>"
    "<final>This letter declines your invitation to the harvest concert.</final>"
)


def writing_env(**options):
    return DeepResearchEnv(queries=[BRIEF], scaffold="writing", **options)


def test_an_episode_without_tools_is_played_paid_and_shown_by_its_stages():
    env = writing_env(reward="stagewise", scorer=RulesScorer([BRIEF], stage_set=WRITING), render_mode="ansi")
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step(OUTLINE)
    assert "Your turn ended without <final>...</final>. Write it, and stop." in observation
    # The outline is closed by its block, so it is paid at once.
    assert reward == info["score_outline"] > 0
    assert info["unscored_draft"] == "not_asked"
    _, reward, terminated, _, info = env.step(REST)
    assert terminated
    assert reward == pytest.approx(info["score_draft"] + info["score_revise"] + info["score_final"])
    assert info["score_final"] == 1.0
    assert all(f"── {name.upper()} " in env.render() for name in WRITING.scaffold.names)


def test_many_episodes_are_paid_by_their_stages():
    env = DeepResearchVectorEnv(
        2, queries=[BRIEF], scaffold=WRITING, reward="answer", scorer=RulesScorer([BRIEF], stage_set=WRITING)
    )
    env.reset(seed=0)
    *_, infos = env.step([OUTLINE + REST, REST])
    assert infos["score_final"].tolist() == [1.0, 1.0]
    assert np.all(infos["_score_final"])


def test_a_stripped_stop_string_is_noticed_by_the_tag_of_the_set():
    env = EmissionChecker(writing_env())
    env.reset(seed=0)
    with pytest.warns(EmissionWarning, match="opens <final> and lacks its closing tag"):
        env.step("<think>t</think><final>text")


def test_a_call_in_a_task_without_tools_is_text():
    env = writing_env()
    env.reset(seed=0)
    *_, info = env.step('<think>t</think><call_tool name="google_search">q</call_tool>')
    assert (info["calls_used"], info["violations"]) == (0, "no_action")


def test_an_unknown_set_is_refused():
    with pytest.raises(ConfigError, match="there is no stage set 'poetry'"):
        DeepResearchEnv(scaffold="poetry")
