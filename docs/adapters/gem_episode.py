"""A group of episodes in gem, offline: python -m docs.adapters.gem_episode."""

import sys

from rubricem_env.adapters import ResearchGemEnv, offline_scorer  # first: it names the extra where gem is missing

# isort: split
import gem

from docs.adapters.prompt import SYSTEM, prompt_of
from docs.adapters.tutor import ATTEMPTS, tutored_query
from docs.adapters.writers import find_writers
from rubricem_env.domain import Query

ENV_ID = "rubricem:almanac"


def told(query: Query) -> str:
    """Gem has no system message: the rules stand before the question."""
    return f"{SYSTEM}\n\n{prompt_of(query)}"


def main() -> None:
    """Four episodes, each scored by the question's own rubrics alone; says the rewards."""
    writers = find_writers()
    sys.stdout.write(f"written by {writers.name}\n")
    gem.register(ENV_ID, f"{ResearchGemEnv.__module__}:{ResearchGemEnv.__name__}")
    settings = {"queries": [tutored_query()], "prompt": told}
    for index in range(len(ATTEMPTS)):
        env = gem.make(ENV_ID, reward="answer", scorer=offline_scorer([tutored_query()]), **settings)
        write = writers.begin(index)
        observation, _ = env.reset(seed=0)
        observation = observation.removeprefix(f"{SYSTEM}\n\n")  # The writer knows the rules; give any other model all.
        is_over = False
        while not is_over:
            observation, reward, terminated, truncated, info = env.step(write(observation))
            is_over = terminated or truncated
        sys.stdout.write(f"{info['ending']}, reward {reward:.3f}\n")
        env.close()
    writers.close()


if __name__ == "__main__":
    main()
