"""The length-bias probe."""

from rubricem_env.judge.base import ScoringRequest, ScoringResult
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.trust.length_bias import probe_length
from rubricem_env.testing.judges import ScriptedJudge, attempt, careless
from tests.rubricem_env.judge.trusted_judges import CRITERION


async def test_the_probe_finds_a_judge_that_likes_length_and_clears_the_rules():
    class LovesLength(ScriptedJudge):
        async def score(self, request: ScoringRequest) -> ScoringResult:
            long = len(request.parsed.answer or "") > 600
            self._score_rubric = lambda *_: 2 if long else 1
            return await super().score(request)

    trajectories = [attempt(), careless(), attempt(answer="<answer>broken")]
    assert await probe_length(LovesLength(lambda *_: 1), trajectories, rubrics=[CRITERION]) == (0.5, 0.5, None)
    assert await probe_length(RulesJudge(), trajectories, rubrics=[CRITERION]) == (0.0, 0.0, None)
