"""When a turn is over, and the policy that comes with the package."""

from pathlib import Path

import pytest

from rubricem_agent.policy.base import LOOP_SPAN, TINY_SYSTEM, Listener, TurnWatch, is_looping, model_folder
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import query_of, shipped_toolbox
from rubricem_records.rollouts.sampling import Sampling


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ('<think>t</think><call_tool name="google_search">q</call_to', None),
        ('<think>t</think><call_tool name="google_search">q</call_tool>', "action"),
        ("<think>I will end with </answer> when <answer>x</answer> is ready", None),
        ("<think>t</think><tool_output>", "foreign"),
    ],
)
def test_a_closed_action_or_forged_tool_output_ends_the_turn_and_a_tag_inside_a_thought_does_not(text, end):
    assert TurnWatch(Listener()).write(text) == end


def test_the_same_words_over_and_over_end_the_turn():
    watch = TurnWatch(Listener())
    ends = [watch.write("and so on ") for _ in range(LOOP_SPAN)]
    # 400 characters are fed between checks and 1,600 must be alike: the fourth check, at the 160th piece.
    assert ends.index("repeating") == 159


@pytest.mark.parametrize("text", ["", "abc", "".join(map(str, range(2_000)))])
def test_ordinary_text_is_no_loop(text):
    assert not is_looping(text)


TINY = Path("tiny")


def test_its_name_leads_to_its_folder_unless_there_is_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (model_folder(TINY) / "model.safetensors").stat().st_size < 16_000_000
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()

    assert model_folder(TINY) == TINY


async def test_it_answers_held_out_questions_in_a_valid_scaffold() -> None:
    policy = LocalPolicy(load_model(TINY), load_tokenizer(TINY), max_length=2_000)
    context = RolloutContext(policy, shipped_toolbox(), EpisodeLimits(max_tokens=1_400), Sampling(temperature=0.0))
    prompt = AgentPrompt(TINY_SYSTEM, "")
    held_out = [one for one in load_questions(shipped_questions_path()) if one.split == "validation"]
    for question in held_out[:3]:
        query = query_of(question)
        rollout = await run_episode(Attempt(query, prompt.opening(query)), context)
        assert not parse_trajectory(rollout.trajectory).rejections
    await policy.aclose()
