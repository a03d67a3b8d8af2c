"""Episodes of other stages through what the adapters share, and the credit of their tokens."""

import pytest

from rubricem_agent.prompting import read_agent_prompts
from rubricem_env.adapters.session import EpisodeSession, offline_env_spec, offline_scorer, turn_rewards, turns_of_stage
from rubricem_env.domain.errors import ConfigError
from tests.letters import BRIEF, LETTER
from tests.scaffolds import WRITING, attempt_of


async def test_a_letter_is_paid_and_scored_in_its_own_stages():
    spec = offline_env_spec(queries=[BRIEF], reward="stagewise", scaffold="writing")
    session = EpisodeSession(spec, BRIEF)

    step = await session.step(LETTER)

    assert step.terminated
    scores = [step.info.get(f"score_{stage}") for stage in WRITING.scaffold.names]
    assert step.reward == pytest.approx(sum(score for score in scores if score is not None))
    assert "score_answer" not in step.info
    assert session.judgement.stages == WRITING.scaffold.names
    assert turn_rewards(session.trajectory, session.judgement) == [pytest.approx(step.reward)]
    assert turns_of_stage(session.trajectory, "final") == {0}


async def test_the_rubrics_of_a_data_set_judge_the_last_stage():
    scorer = offline_scorer([BRIEF], WRITING)
    attempts = [attempt_of(WRITING.scaffold, BRIEF.question, answer=text) for text in ("Thanks for the tea.", "No.")]

    good, bad = await scorer.score(attempts)

    assert good.score("final") > bad.score("final")
    polite = BRIEF.rubrics[0].model_copy(update={"stage": "final"})
    assert polite.id in {score.rubric_id for score in good.outcome("final").rubric_scores}


def test_a_stage_set_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'writing'"):
        offline_env_spec(scaffold="writting")


def test_a_folder_of_prompts_goes_with_a_set_of_ones_own(tmp_path):
    own = WRITING.model_copy(update={"scaffold": WRITING.scaffold.model_copy(update={"name": "letters"})})

    with pytest.raises(ConfigError, match=r"agent\.md from the stage set letters"):
        read_agent_prompts(tmp_path, own)
