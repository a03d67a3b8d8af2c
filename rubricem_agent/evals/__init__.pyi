from rubricem_agent.evals.base import (
    Benchmark as Benchmark,
    EvaluationMode as EvaluationMode,
    Example as Example,
    Gold as Gold,
    Rules as Rules,
    ShortAnswerGold as ShortAnswerGold,
    Unit as Unit,
)
from rubricem_agent.evals.grading import (
    Case as Case,
    Grade as Grade,
    GradedExample as GradedExample,
    Grader as Grader,
    GradingQuestion as GradingQuestion,
    Totals as Totals,
    replay as replay,
)
from rubricem_agent.evals.runner import Runner as Runner
from rubricem_agent.evals.scores import score_run as score_run
from rubricem_agent.evals.statistics import bootstrap_mean as bootstrap_mean
from rubricem_agent.evals.suite import load_benchmark as load_benchmark, rules_for as rules_for
