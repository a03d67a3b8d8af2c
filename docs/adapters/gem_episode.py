"""A group of episodes in gem, offline: python -m docs.adapters.gem_episode."""

import sys

import gem

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_query, tutored_questions
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.scorer import GroupScorer
from rubricem_env.judge.step import StepJudge

ENV_ID = "rubricem:almanac"


def main() -> None:
    """Four episodes, each scored by the question's own rubrics alone; says the rewards."""
    query = tutored_query()
    scorer = GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {query.key: query})
    gem.register(ENV_ID, "rubricem_env.adapters.gem:ResearchGemEnv")
    for place in range(len(ATTEMPTS)):
        env = gem.make(ENV_ID, queries=[query], reward="answer", scorer=scorer)
        write = Tutor(tutored_questions()[query.question], place)
        observation, _ = env.reset(seed=0)
        is_over = False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(write(observation))
            is_over = terminated or truncated
        sys.stdout.write(f"reward {reward:.3f}\n")
        env.close()


if __name__ == "__main__":
    main()
