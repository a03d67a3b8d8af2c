"""One group of episodes in SkyRL-Gym, offline: python -m docs.adapters.skyrl_episode.

The trainer's generator does the same: it makes an environment for each row, and steps them in a pool of threads.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import skyrl_gym

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_query, tutored_questions
from rubricem_env.adapters.gathering import GatheringScorer
from rubricem_env.adapters.session import make_setup
from rubricem_env.adapters.skyrl import ResearchTextEnv
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.scorer import GroupScorer
from rubricem_env.judge.step import StepJudge

ENV_ID = "rubricem_almanac"
_QUERY = tutored_query()
_SCORER = GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {_QUERY.key: _QUERY})


class AlmanacEnv(ResearchTextEnv):
    """The almanac, judged by rules within groups of four; the answer's score is the reward."""

    research = make_setup(reward="answer", scorer=GatheringScorer(_SCORER, len(ATTEMPTS), patience=120.0))


def play(place: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One episode to its end: its last output, and its metrics."""
    env = skyrl_gym.make(ENV_ID, env_config={}, extras={"query_key": _QUERY.key})
    write = Tutor(tutored_questions()[_QUERY.question], place)
    messages, _ = env.init([])
    output = env.step(write(messages[-1]["content"]))
    while not output["done"]:
        output = env.step(write(output["observations"][-1]["content"]))
    env.close()
    return output, env.get_metrics()


def main() -> None:
    """One group of four; says reward and rewards by turn of each."""
    skyrl_gym.register(id=ENV_ID, entry_point="docs.adapters.skyrl_episode:AlmanacEnv")
    with ThreadPoolExecutor(len(ATTEMPTS)) as pool:
        for output, _ in pool.map(play, range(len(ATTEMPTS))):
            rewards = output["metadata"]["turn_rewards"]
            sys.stdout.write(f"reward {output['reward']:.3f}, by turn {rewards}\n")


if __name__ == "__main__":
    main()
