"""One group of episodes in SkyRL-Gym, offline: python -m docs.adapters.skyrl_episode.

The trainer's generator does the same: it makes an environment for each row, and steps them in a pool of threads.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rubricem_env.adapters import (  # first: it names the extra where skyrl_gym is missing
    ResearchTextEnv,
    offline_env_spec,
)

# isort: split
import skyrl_gym

from docs.adapters.prompt import SYSTEM, prompt_of
from docs.adapters.tutor import ATTEMPTS, tutored_query
from docs.adapters.writers import Writer, find_writers

ENV_ID = "rubricem_almanac"


class AlmanacEnv(ResearchTextEnv):
    """The almanac, judged by rules within groups of four; the answer's score is the reward."""

    research = offline_env_spec(
        queries=[tutored_query()], group_size=len(ATTEMPTS), patience=120.0, prompt=prompt_of, system=SYSTEM
    )


def play(write: Writer) -> dict[str, Any]:
    """One episode to its end: its last output."""
    env = skyrl_gym.make(ENV_ID, env_config={}, extras={"query_key": tutored_query().key})
    messages, _ = env.init([])
    output = env.step(write(messages[-1]["content"]))
    while not output["done"]:
        output = env.step(write(output["observations"][-1]["content"]))
    env.close()
    return output


def main() -> None:
    """One group of four; says reward and rewards by turn of each."""
    writers = find_writers()
    sys.stdout.write(f"written by {writers.name}\n")
    skyrl_gym.register(id=ENV_ID, entry_point="docs.adapters.skyrl_episode:AlmanacEnv")
    with ThreadPoolExecutor(len(ATTEMPTS)) as pool:
        for output in pool.map(play, map(writers.begin, range(len(ATTEMPTS)))):
            rewards = output["metadata"]["turn_rewards"]
            sys.stdout.write(f"{output['metadata']['ending']}, reward {output['reward']:.3f}, by turn {rewards}\n")
    writers.close()


if __name__ == "__main__":
    main()
