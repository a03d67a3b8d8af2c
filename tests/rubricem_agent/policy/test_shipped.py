"""The policy that comes with the package, found by its name and able to do what its page says."""

from pathlib import Path

import pytest

from rubricem_agent.policy.base import TINY_SYSTEM, Sampling, model_folder
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import query_of, shipped_toolbox
from rubricem_env.scaffold.grammar import ValidationMode
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.almanac import load_questions, shipped_questions_path

TINY = Path("tiny")


def test_its_name_leads_to_its_folder_unless_there_is_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (model_folder(TINY) / "model.safetensors").stat().st_size < 16_000_000
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()

    assert model_folder(TINY) == TINY


async def test_it_answers_held_out_questions_in_a_valid_scaffold() -> None:
    policy = LocalPolicy.over(load_model(TINY), load_tokenizer(TINY), max_length=2_000)
    setting = Setting(policy, shipped_toolbox(), EpisodeLimits(max_tokens=1_400), Sampling(temperature=0.0))
    prompt = AgentPrompt(TINY_SYSTEM, "")
    held_out = [one for one in load_questions(shipped_questions_path()) if one.split == "validation"]
    for question in held_out[:3]:
        query = query_of(question)
        rollout = await run_episode(Attempt(query, prompt.opening(query)), setting)
        assert not read_trajectory(rollout.trajectory).rejects(ValidationMode.STRICT)
    await policy.aclose()
