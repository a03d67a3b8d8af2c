from rubricem_env.domain.judgement import RubricScore as RubricScore
from rubricem_env.judge.base import (
    Contrast as Contrast,
    Judge as Judge,
    Proposal as Proposal,
    ScoringRequest as ScoringRequest,
    ScoringResult as ScoringResult,
)
from rubricem_env.judge.ensemble import EnsembleJudge as EnsembleJudge
from rubricem_env.judge.group import Group as Group
from rubricem_env.judge.group_scorer import GroupScorer as GroupScorer
from rubricem_env.judge.judgements import GroupJudgement as GroupJudgement, RolloutJudgement as RolloutJudgement
from rubricem_env.judge.model.llm_judge import LLMJudge as LLMJudge
from rubricem_env.judge.model.templates import read_judge_prompts as read_judge_prompts
from rubricem_env.judge.pipeline import StepJudge as StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer as RubricBuffer
from rubricem_env.judge.rubrics.rubric_set import RubricSet as RubricSet
from rubricem_env.judge.rules.rules_judge import RulesJudge as RulesJudge
from rubricem_env.judge.rules.rules_scorer import RulesScorer as RulesScorer
from rubricem_env.judge.scoring import score_stage as score_stage
from rubricem_env.judge.settings import JudgeSettings as JudgeSettings
from rubricem_env.judge.trust.audit import HeldOutAudit as HeldOutAudit
from rubricem_env.judge.trust.calibration import calibrate as calibrate
