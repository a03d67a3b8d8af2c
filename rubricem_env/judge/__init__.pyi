from rubricem_env.domain.judgement import RubricScore as RubricScore
from rubricem_env.judge.audit import HeldOutAudit as HeldOutAudit, calibrate as calibrate
from rubricem_env.judge.base import (
    Contrast as Contrast,
    EnsembleJudge as EnsembleJudge,
    Group as Group,
    Judge as Judge,
    JudgeSettings as JudgeSettings,
    Proposal as Proposal,
    ScoringRequest as ScoringRequest,
    ScoringResult as ScoringResult,
)
from rubricem_env.judge.llm_judge import LLMJudge as LLMJudge
from rubricem_env.judge.pipeline import GroupScorer as GroupScorer, StepJudge as StepJudge
from rubricem_env.judge.rubrics import RubricBuffer as RubricBuffer, RubricSet as RubricSet
from rubricem_env.judge.rules_judge import RulesJudge as RulesJudge
from rubricem_env.judge.scoring import (
    GroupJudgement as GroupJudgement,
    RolloutJudgement as RolloutJudgement,
    score_stage as score_stage,
)
