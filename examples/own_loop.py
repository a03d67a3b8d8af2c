"""The environment in a loop of your own: stage rewards, and the stage advantages of a group of attempts.

    python examples/own_loop.py                      # offline, in a second, without a key or a model

Three scripts stand for a policy of three moods. Put your model in their place: it reads `observation` and writes the
next emission, which ends with a tool call or the answer. The rules judge scores each stage by the question's rubrics.
"""

import numpy as np

from rubricem_agent.learn import assign_credit
from rubricem_env.domain import STAGES, Query, Rubric, Stage
from rubricem_env.env import DeepResearchEnv
from rubricem_env.judge import GroupScorer, RubricBuffer, RulesJudge, StepJudge

CRITERIA = {
    Stage.PLAN: "The plan asks for the width of Tall Fox in metres.",
    Stage.RESEARCH: "The searches look for Tall Fox and its width.",
    Stage.REVIEW: "The review confirms the width of Tall Fox.",
    Stage.ANSWER: "The answer gives the width of Tall Fox as 60 m.",
}
RUBRICS = tuple(Rubric(stage=stage, title=stage.value, description=text) for stage, text in CRITERIA.items())
QUERY = Query(question="How wide is the river Tall Fox?", rubrics=RUBRICS)

PLAN = "<structured_plan>I need the width of Tall Fox in metres.</structured_plan>"
SEARCH = '<call_tool name="google_search">Tall Fox width</call_tool>'
REVIEW = "<review>S_1 confirms the width of Tall Fox.</review>"
ANSWER = '<answer><cite id="S_1">The width of Tall Fox is 60 m.</cite></answer>'
FIRST_AND_LAST = {
    "careful": (PLAN + SEARCH, REVIEW + ANSWER),
    "hasty": (PLAN + SEARCH, ANSWER),
    "guessing": ("<structured_plan>I know rivers.</structured_plan>" + SEARCH, "<answer>It is wide.</answer>"),
}


def main() -> None:
    scorer = GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {QUERY.key: QUERY})
    env = DeepResearchEnv(queries=[QUERY], reward="stagewise", scorer=scorer)
    scores = np.full((len(FIRST_AND_LAST), len(STAGES)), np.nan)  # a stage without a score is not a stage with score 0
    for row, (mood, (first, last)) in enumerate(FIRST_AND_LAST.items()):
        observation, _ = env.reset(seed=row)
        is_over = False
        while not is_over:
            emission = last if "<snippet" in observation else first
            observation, reward, terminated, truncated, info = env.step(emission)
            is_over = terminated or truncated
            print(f"{mood}: reward {float(reward):.2f} for turn {info['turn']}")
            for column, stage in enumerate(STAGES):  # the plan is paid when it is written, the other stages at the end
                scores[row, column] = info.get(f"score_{stage.value}", scores[row, column])
    env.close()
    credit = assign_credit(np.nan_to_num(scores), scored=~np.isnan(scores))
    print("advantages", *(stage.value.rjust(8) for stage in STAGES))
    for mood, advantages in zip(FIRST_AND_LAST, credit.advantages, strict=True):
        print(mood.ljust(10), *(f"{advantage:+8.2f}" for advantage in advantages))


if __name__ == "__main__":
    main()
